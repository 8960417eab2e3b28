package probe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// DefaultDeadline bounds one scrape. A busy vLLM on a CPU answers within tens
// of milliseconds; a hung one must not hang the run.
const DefaultDeadline = 5 * time.Second

// A Scraper reads the metrics page at one URL. It is a row.Probe and safe for
// concurrent use.
type Scraper struct {
	Deadline time.Duration // of one scrape, on top of the caller's context

	name   string
	url    string
	client *http.Client
}

var _ row.Probe = (*Scraper)(nil)

// New returns a probe called name that reads url. With a nil client it uses
// one that ignores proxy settings.
func New(name, url string, client *http.Client) *Scraper {
	if client == nil {
		client = &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}}
	}
	return &Scraper{Deadline: DefaultDeadline, name: name, url: url, client: client}
}

// Name returns the name given to New.
func (s *Scraper) Name() string { return s.name }

// Snapshot reads the page once. There are no retries: a server that does not
// answer is unknown, and the caller says so.
func (s *Scraper) Snapshot(ctx context.Context) (row.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	snapshot, err := s.read(ctx)
	if err != nil {
		return row.Snapshot{}, fmt.Errorf("scraping %s at %s: %w", s.name, redacted(s.url), err)
	}
	return snapshot, nil
}

func (s *Scraper) read(ctx context.Context) (_ row.Snapshot, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return row.Snapshot{}, err
	}
	// Without it a server may choose OpenMetrics, whose exemplars are another
	// grammar.
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := s.client.Do(request)
	if err != nil {
		return row.Snapshot{}, err
	}
	defer func() {
		if closing := answer.Body.Close(); err == nil {
			err = closing
		}
	}()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // best effort: the status is the error
		return row.Snapshot{}, fmt.Errorf("HTTP status %s: %q", answer.Status, bytes.TrimSpace(body))
	}
	return Parse(s.name, answer.Body)
}

// redacted hides a password in the URL: errors end up in artifacts.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "an unreadable URL"
	}
	return u.Redacted()
}
