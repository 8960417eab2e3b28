package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

func TestStalls(t *testing.T) {
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter)
		status int
		chunks int
	}{
		{"before the headers", func(http.ResponseWriter) {}, 0, 0},
		{"before the first byte", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 200, 0},
		{"between chunks", func(w http.ResponseWriter) { writeEvent(w, someToken) }, 200, 1},
		{"before [DONE]", func(w http.ResponseWriter) { writeEvent(w, lastToken) }, 200, 1},
		{"in an error body", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			w.(http.Flusher).Flush()
		}, 500, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				tt.answer(w)
				<-r.Context().Done() // the client must hang up
			})
			// Once there is a connection, how long one may take is over.
			client := newClient(t, Config{BaseURL: server.URL, Stall: 500 * time.Millisecond, ConnectTimeout: time.Hour})
			got := client.Do(t.Context(), shortRequest("r"))
			require.Equal(t, row.Stall, got.Status, got.Err)
			require.Contains(t, got.Err, "nothing arrived within 500ms")
			require.Equal(t, tt.status, got.HTTP)
			require.Len(t, got.Chunks, tt.chunks)
			if tt.status != http.StatusInternalServerError {
				require.ErrorIs(t, client.Health(t.Context()), ErrStalled, "admin calls have the deadline too")
			}
		})
	}
}

// What the server said is the reason, not the silence that follows it.
func TestErrorEventThenSilence(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		writeEvent(w, someToken)
		writeEvent(w, `{"error":{"message":"boom","type":"T"}}`)
		<-r.Context().Done()
	})
	got := newClient(t, Config{BaseURL: server.URL, Stall: 500 * time.Millisecond}).Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.StreamError, got.Status)
	require.Contains(t, got.Err, "T: boom")
	require.Equal(t, " w9", got.Text)
}

// Comments are bytes: a server that sends them is alive.
func TestKeepAliveIsNoStall(t *testing.T) {
	t.Parallel()
	const stall = 2 * time.Second
	server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 8 { // together longer than a stall
			fmt.Fprint(w, ": keep-alive\n\n")
			w.(http.Flusher).Flush()
			<-time.After(stall / 7)
		}
		shortAnswer(w)
	})
	client := newClient(t, Config{BaseURL: server.URL, Stall: stall})
	require.Equal(t, row.OK, client.Do(t.Context(), shortRequest("r")).Status)
}

func TestCancelled(t *testing.T) {
	for _, when := range []string{"before", "during the wait", "during the stream"} {
		t.Run(when, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stop := func() { cancel(errors.New("ctrl-C")) }
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if when == "during the stream" {
					writeEvent(w, someToken)
				}
				stop()
				<-r.Context().Done()
			})
			if when == "before" {
				stop()
			}
			got := newClient(t, Config{BaseURL: server.URL}).Do(ctx, shortRequest("r"))
			require.Equal(t, row.Cancelled, got.Status, got.Err)
			require.Contains(t, got.Err, "ctrl-C")
		})
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	free := listener.Addr().String()
	require.NoError(t, listener.Close())

	got := newClient(t, Config{BaseURL: "http://" + free}).Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.Unreachable, got.Status)
	require.Contains(t, got.Err, "connection refused")
	require.Contains(t, got.Err, free)
	require.True(t, got.Connected.IsZero())

	got = newClient(t, Config{BaseURL: "http://bad address"}).Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.Unreachable, got.Status)
	require.NotEmpty(t, got.Err)
}

// A request that was sent is not sent again, not even over a connection that
// worked before and with a header that would allow it.
func TestNothingSentIsRepeated(t *testing.T) {
	var seen atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) == 1 {
			shortAnswer(w)
			return
		}
		io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	client := newClient(t, Config{BaseURL: server.URL, Header: http.Header{"idempotency-key": {"1"}, "X-Idempotency-Key": {"1"}}})
	require.Equal(t, row.OK, client.Do(t.Context(), shortRequest("r")).Status)
	got := client.Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.Unreachable, got.Status)
	require.NotEmpty(t, got.Err)
	require.False(t, got.Connected.IsZero())
	require.Equal(t, int32(2), seen.Load())
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var seen atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	got := newClient(t, Config{BaseURL: server.URL}).Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.HTTPError, got.Status)
	require.Equal(t, http.StatusTemporaryRedirect, got.HTTP)
	require.Equal(t, int32(1), seen.Load())
}
