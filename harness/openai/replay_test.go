package openai

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// How a stream on a real socket is judged. The server stamps the moment just
// before each of its writes, on the clock that the client uses too. A chunk
// that write k completed cannot be stamped before that moment. Nor after the
// moment of write k+1, because the server holds that write back until the
// client has come back to the socket with all earlier bytes in hand, and the
// client stamps a read before it makes the next one. So each of the client's
// times falls into exactly one window between two writes, whatever the
// machine is busy with, and the window's nominal time must be the expected
// one, exactly.

// A turnstile sits under a client's connection and knows when the client is
// in a read with all that was sent so far.
type turnstile struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond
	got     int
	reading bool
	closed  bool
}

func (s *turnstile) Read(p []byte) (int, error) {
	s.set(func() { s.reading = true })
	n, err := s.Conn.Read(p)
	s.set(func() { s.reading, s.got = false, s.got+n })
	return n, err
}

func (s *turnstile) Close() error {
	s.set(func() { s.closed = true })
	return s.Conn.Close()
}

func (s *turnstile) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.changed.Broadcast()
}

func (s *turnstile) await(sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (!s.reading || s.got < sent) {
		s.changed.Wait()
	}
}

// An ending is how the server ends its answer.
type ending string

const (
	clean ending = "clean" // the last chunk of the encoding
	quiet ending = "quiet" // the connection is closed without it
	reset ending = "reset" // the connection is reset
)

// A replay answers one request by a list of writes.
type replay struct {
	listener net.Listener
	writes   [][]byte
	wait     []time.Duration // before each write, from the one before it
	end      ending
	dialled  chan *turnstile
	before   []time.Time // just before each write, and before the end
	done     chan error
}

// start serves one answer and returns a client for it.
func (r *replay) start(t *testing.T, cfg Config) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	r.listener, r.dialled, r.done = listener, make(chan *turnstile, 1), make(chan error, 1)
	go func() { r.done <- r.serve() }()

	cfg.BaseURL = "http://" + listener.Addr().String()
	client := New(cfg)
	t.Cleanup(client.Close)
	transport := client.timed.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		gate := &turnstile{Conn: conn.(*stampedConn).Conn}
		gate.changed = sync.NewCond(&gate.mu)
		conn.(*stampedConn).Conn = gate
		r.dialled <- gate
		return conn, nil
	}
	return client
}

func (r *replay) serve() error {
	conn, err := r.listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return err
	}
	gate := <-r.dialled
	sent := 0
	send := func(text string) error {
		n, err := io.WriteString(conn, text)
		sent += n
		return err
	}
	if err := send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	for i, part := range r.writes {
		gate.await(sent)
		if r.wait != nil {
			<-time.After(r.wait[i])
		}
		r.before = append(r.before, time.Now())
		if err := send(fmt.Sprintf("%x\r\n%s\r\n", len(part), part)); err != nil {
			return err
		}
	}
	gate.await(sent)
	r.before = append(r.before, time.Now())
	switch r.end {
	case clean:
		return send("0\r\n\r\n")
	case reset:
		return conn.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

// window is the number of the write whose window holds a time, -1 if none.
func (r *replay) window(at time.Time) int {
	for i := range r.writes {
		if !at.Before(r.before[i]) && !at.After(r.before[i+1]) {
			return i
		}
	}
	return -1
}

// scale is how much faster than nominal the cases are replayed. The gaps only
// have to be there; nothing is judged by their length.
const scale = 20

// replayed runs a case over a socket and returns the client's timeline with
// every time replaced by the nominal one of its window.
func (c sseCase) replayed(t *testing.T, end ending) row.Timeline {
	t.Helper()
	server := &replay{writes: c.writes(), end: end}
	last := 0
	for _, w := range c.Writes {
		server.wait = append(server.wait, time.Duration(w[0]-last)*time.Millisecond/scale)
		last = w[0]
	}
	client := server.start(t, Config{Model: "m", Concurrency: 1})
	var got row.Timeline
	if c.Endpoint == "chat" {
		got = client.Chat(t.Context(), ChatRequest{ID: "case", Messages: []Message{{Role: "user", Content: "hi"}}, MaxTokens: 4})
	} else {
		got = client.Do(t.Context(), row.Request{ID: "case", Prompt: []int32{8, 9}, MaxTokens: 4})
	}
	require.NoError(t, <-server.done)

	require.False(t, got.Sent.IsZero())
	require.False(t, got.Connected.Before(got.Sent))
	require.False(t, got.End.Before(server.before[len(server.writes)-1]), "the stream ended before its last write")
	translate := func(at *time.Time) {
		if at.IsZero() {
			return
		}
		k := server.window(*at)
		require.GreaterOrEqual(t, k, 0, "a time in no window: %v of %v", *at, server.before)
		*at = nominal(c.Writes[k][0])
	}
	for _, at := range []*time.Time{&got.FirstByte, &got.FirstToken, &got.FirstContent, &got.LastToken} {
		translate(at)
	}
	for i := range got.Chunks {
		translate(&got.Chunks[i].At)
	}
	got.Sent = nominalStart
	return got
}

func TestCasesOverSocket(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.check(t, c.replayed(t, clean))
		})
	}
}

// A connection that breaks after [DONE] or after a finish reason does not
// spoil what came; one that breaks before is no answer.
func TestCasesWithBrokenEnd(t *testing.T) {
	for _, c := range loadCases(t) {
		for _, end := range []ending{quiet, reset} {
			t.Run(c.Name+"/"+string(end), func(t *testing.T) {
				t.Parallel()
				c.check(t, c.replayed(t, end))
				if len(c.Writes) < 2 {
					return
				}
				cut := c
				cut.Writes = c.Writes[:1] // a role chunk, an empty text, or an error event
				cut.Stream = c.Stream[:c.Writes[0][1]]
				got := cut.replayed(t, end)
				want := row.CutOff
				if c.Name == "sse-09-error-only" {
					want = row.StreamError
				}
				require.Equal(t, want, got.Status)
				require.NotEmpty(t, got.Err)
				require.Equal(t, 200, got.HTTP)
				_, any := got.TTFT()
				require.False(t, any)
			})
		}
	}
}

// The same without holding the server back: however the network bundles the
// writes, the content is the same and no chunk is stamped before it was sent.
func TestCasesAtFullSpeed(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			stamps := make([]time.Time, len(c.Writes))
			server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i, part := range c.writes() {
					stamps[i] = time.Now()
					w.Write(part)
					w.(http.Flusher).Flush()
				}
			})
			client := New(Config{BaseURL: server.URL, Concurrency: 1})
			defer client.Close()
			got := client.Do(t.Context(), row.Request{ID: "case", Prompt: []int32{8, 9}, MaxTokens: 4})
			want := play(c.writes(), nil, func(read int) time.Time { return nominal(c.Writes[read-1][0]) })
			require.Equal(t, want.Status, got.Status)
			require.Equal(t, want.Text, got.Text)
			require.Equal(t, want.Reasoning, got.Reasoning)
			require.Equal(t, want.ToolCalls, got.ToolCalls)
			require.Equal(t, want.Usage, got.Usage)
			require.Equal(t, want.Err, got.Err)
			require.Len(t, got.Chunks, len(want.Chunks))
			for i, chunk := range got.Chunks {
				require.Equal(t, want.Chunks[i].Text, chunk.Text)
				for k, w := range c.Writes {
					if want.Chunks[i].At.Equal(nominal(w[0])) {
						require.False(t, chunk.At.Before(stamps[k]), "chunk %d came before it was sent", i)
					}
				}
			}
		})
	}
}
