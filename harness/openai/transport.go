package openai

import (
	"context"
	"net"
	"net/http"
	"time"
)

// What a Config that leaves them out gets.
const (
	DefaultStall          = 2 * time.Minute
	DefaultConnectTimeout = 10 * time.Second
)

// idleTimeout is shorter than the 5 s after which vLLM closes an idle
// connection (VLLM_HTTP_TIMEOUT_KEEP_ALIVE, 0.32.0): a longer one races the
// close, and a request that loses the race fails.
const idleTimeout = 4 * time.Second

// newTransport is a transport for measuring: one idle connection for each
// worker, HTTP/1.1, nothing compressed, no proxy from the environment.
//
// What it retries: net/http repeats a POST, on another connection, only if a
// reused connection broke before any byte of the request was written to it
// (its nothingWrittenError) and the body can be had again. A request of which
// a byte was written may have reached the server; it fails, unless a header
// Idempotency-Key calls it repeatable, which New therefore drops.
func newTransport(concurrency int, connect time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: connect, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stampedConn{Conn: conn}, nil
		},
		TLSHandshakeTimeout: connect,
		MaxIdleConnsPerHost: concurrency,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
		ReadBufferSize:      readSize,
	}
}
