package recipe

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// withHeader adds the key and the headers to what goes to the engine's host.
type withHeader struct {
	engine string
	key    string
	header http.Header
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	if u, err := url.Parse(w.engine); err == nil && u.Host == r.URL.Host {
		r = r.Clone(r.Context())
		for name, values := range w.header {
			r.Header[name] = values
		}
		if w.key != "" {
			r.Header.Set("Authorization", "Bearer "+w.key)
		}
	}
	return direct.RoundTrip(r)
}

// direct goes past any proxy of the environment.
var direct = &http.Transport{Proxy: nil, IdleConnTimeout: time.Minute}

// replicas are the pages of several servers as one: each series carries the
// number of its page, so that sums count all of them.
type replicas struct {
	name  string
	pages []*probe.Scraper
}

func newReplicas(name string, urls []string, client *http.Client) row.Probe {
	r := replicas{name: name}
	for _, u := range urls {
		r.pages = append(r.pages, probe.New(name, u, client))
	}
	if len(r.pages) == 1 {
		return r.pages[0]
	}
	return r
}

func (r replicas) Name() string { return r.name }

func (r replicas) Snapshot(ctx context.Context) (row.Snapshot, error) {
	all := row.Snapshot{Probe: r.name}
	for i, page := range r.pages {
		s, err := page.Snapshot(ctx)
		if err != nil {
			return row.Snapshot{}, err
		}
		for _, series := range s.Series {
			labels := map[string]string{"replica": fmt.Sprint(i)}
			for name, value := range series.Labels {
				labels[name] = value
			}
			series.Labels = labels
			all.Series = append(all.Series, series)
		}
	}
	return all, nil
}
