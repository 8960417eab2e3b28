package openai

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// Config says which server a client talks to and how.
type Config struct {
	BaseURL        string        // without the route, e.g. "http://127.0.0.1:8000"; a final /v1 is ignored
	Model          string        // name under which the server knows the model
	Concurrency    int           // connections kept open; the load decides how many are used
	Stall          time.Duration // longest wait for the first byte and between bytes; 0: DefaultStall
	ConnectTimeout time.Duration // 0: DefaultConnectTimeout
	APIKey         string        // sent as a bearer token; empty: none
	Header         http.Header   // sent with every request; those that the client sets itself win

	// SkipReuse is sent as kv_transfer_params with requests that must be
	// answered without the cache; nil: such requests are sent like any other.
	SkipReuse map[string]bool

	// SkipCachePrompt sends cache_prompt:false with those requests, which is
	// llama.cpp's way.
	SkipCachePrompt bool
}

// A Client sends requests to one server. It may be used by many goroutines.
type Client struct {
	base    string
	model   string
	connect time.Duration
	stall   time.Duration
	header  http.Header
	secrets secrets
	skip    map[string]bool
	noCache *bool // cache_prompt of requests that skip the cache; nil: not sent
	timed   *http.Client
	admin   *http.Client // on connections of its own, so that it takes none from a worker
}

var _ row.Client = (*Client)(nil)

// New returns a client. It connects to nothing yet.
func New(cfg Config) *Client {
	header := http.Header{}
	for name, values := range cfg.Header {
		for _, value := range values {
			header.Add(name, value) // under its canonical name
		}
	}
	// Either would let the transport repeat a request that was sent.
	header.Del("Idempotency-Key")
	header.Del("X-Idempotency-Key")
	if cfg.APIKey != "" {
		header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	c := &Client{
		base:    strings.TrimSuffix(strings.TrimRight(cfg.BaseURL, "/"), "/v1"),
		model:   cfg.Model,
		connect: cfg.ConnectTimeout,
		stall:   cfg.Stall,
		header:  header,
		secrets: newSecrets(cfg),
		skip:    cfg.SkipReuse,
	}
	if c.connect <= 0 {
		c.connect = DefaultConnectTimeout
	}
	if c.stall <= 0 {
		c.stall = DefaultStall
	}
	if cfg.SkipCachePrompt {
		c.noCache = new(bool)
	}
	c.timed = newHTTPClient(newTransport(max(cfg.Concurrency, 1), c.connect))
	c.admin = newHTTPClient(newTransport(1, c.connect))
	return c
}

// newHTTPClient takes a redirect for an answer: following it would put a
// second request inside the timing.
func newHTTPClient(transport *http.Transport) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes the idle connections.
func (c *Client) Close() {
	c.timed.CloseIdleConnections()
	c.admin.CloseIdleConnections()
}

// Do sends a request to /v1/completions and reads its stream.
func (c *Client) Do(ctx context.Context, q row.Request) row.Timeline {
	return c.stream(ctx, "/v1/completions", q.ID, c.completion(q))
}

// Chat sends a request to /v1/chat/completions and reads its stream.
func (c *Client) Chat(ctx context.Context, q ChatRequest) row.Timeline {
	return c.stream(ctx, "/v1/chat/completions", q.ID, c.chat(q))
}

// Stream posts a body to another route of the server and reads the answer as a
// stream of completions, for servers that put one in front of an engine. The
// body must ask for a stream.
func (c *Client) Stream(ctx context.Context, path, id string, body any) row.Timeline {
	return c.stream(ctx, path, id, body)
}
