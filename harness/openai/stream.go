package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// stream sends one request and reads its stream, all in this goroutine.
func (c *Client) stream(parent context.Context, path, id string, body any) row.Timeline {
	t := row.Timeline{ID: id}
	ctx, dog := newWatchdog(parent, c.connect, c.stall)
	defer dog.stop()
	conn := new(exchange)
	req, err := c.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { // called in this goroutine
			t.Connected = time.Now()
			conn = stamped(info.Conn).begin()
		},
	}), http.MethodPost, path, body)
	if err != nil {
		t.Status, t.Err = row.Unreachable, c.secrets.hide(err.Error())
		return t
	}
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	req.Header.Set("Accept", "text/event-stream")

	t.Sent = time.Now()
	res, err := c.timed.Do(req)
	if err != nil {
		t.End = time.Now()
		t.Status, t.Err = row.Unreachable, c.secrets.hide(sending(req, err).Error())
		c.ownEnd(ctx, &t, "waiting for the answer of POST "+path)
		return t
	}
	defer res.Body.Close()
	dog.alive()
	t.HTTP = res.StatusCode
	source := watched{Reader: res.Body, dog: dog}
	if res.StatusCode != http.StatusOK {
		said, err := readError(res.StatusCode, source)
		t.End = time.Now()
		t.Status, t.Err = row.HTTPError, c.secrets.hide(said.Error())
		if err != nil {
			c.ownEnd(ctx, &t, fmt.Sprintf("reading the body of HTTP %d", res.StatusCode))
		}
		return t
	}
	room := spaces.Get().(*space)
	defer room.release()
	rec := record(source, room, conn.stamp, dog.hurry)
	fill(&t, rec)
	if len(rec.head) > 0 && !isEventStream(res.Header) {
		t.Status = row.StreamError
		t.Err = fmt.Sprintf("answer is %q, not an event stream: %s", res.Header.Get("Content-Type"), parseError(0, rec.head).Message)
	}
	t.Err = c.secrets.hide(t.Err)
	if rec.err != nil && t.Status != row.StreamError {
		c.ownEnd(ctx, &t, fmt.Sprintf("reading the stream after %d events", len(rec.events)))
	}
	return t
}

// ownEnd replaces the status of a request that this side ended: for a stall,
// or because the caller's context did. The server is not to blame for what
// the broken connection then looked like.
func (c *Client) ownEnd(ctx context.Context, t *row.Timeline, doing string) {
	if ctx.Err() == nil {
		return
	}
	cause := context.Cause(ctx)
	t.Status = row.Cancelled
	if errors.Is(cause, ErrStalled) {
		t.Status = row.Stall
	}
	t.Err = c.secrets.hide(fmt.Sprintf("%s: %v", doing, cause))
}

// request encodes body as JSON (nil: no body) and sets the headers that every
// request has.
func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding the request for %s: %w", path, err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, fmt.Errorf("making the request for %s: %w", path, err)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// sending says what was being done when no answer came, without the URL's
// password.
func sending(req *http.Request, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("sending %s %s: %w", req.Method, req.URL.Redacted(), err)
}

// Bounds of what is read of a body that is not an answer, in bytes.
const (
	maxErrorBody = 64 << 10
	maxDrain     = 1 << 20
)

// readError reads the body of an answer that is not 200, to its end so that
// the connection can be used again. The error is that of reading; what came
// before it is in the ServerError.
func readError(status int, body io.Reader) (*ServerError, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(body, maxDrain))
	}
	return parseError(status, text), err
}

func isEventStream(header http.Header) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
