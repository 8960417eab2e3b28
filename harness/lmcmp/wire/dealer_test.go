package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patient = 30 * time.Second // longer than any test takes

// serve accepts connections and hands each message to answer, which may send
// replies through send at any time. It returns the endpoint.
func serve(t *testing.T, answer func(request Received, send func(frames ...[]byte))) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				conn, err := Accept(ctx, c)
				if err != nil {
					return
				}
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				defer conn.Close()
				for {
					frames, err := conn.Receive()
					if err != nil {
						return
					}
					request, err := Newest().DecodeRequest(frames)
					if err != nil {
						continue
					}
					answer(request, func(frames ...[]byte) {
						if frames == nil {
							_ = conn.Close()
							return
						}
						_ = conn.Send(frames)
					})
				}
			})
		}
	})
	return "tcp://" + listener.Addr().String()
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := Encode(v)
	require.NoError(t, err)
	return b
}

func dealer(t *testing.T, endpoint string, patience time.Duration) *Dealer {
	t.Helper()
	d := NewDealer(endpoint, Newest(), patience)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// Two calls overlap and are answered in the opposite order: each gets its own.
func TestRepliesOutOfOrder(t *testing.T) {
	var held []Received
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		held = append(held, r)
		if len(held) < 8 {
			return
		}
		for i := len(held) - 1; i >= 0; i-- {
			send(held[i].UID, held[i].OpFrame, held[i].UID)
		}
	})
	d := dealer(t, endpoint, patient)
	var calls sync.WaitGroup
	results := make([]int, 8)
	for i := range results {
		calls.Go(func() {
			present, err := d.Call(t.Context(), &GetChunkSize{}, &results[i])
			require.NoError(t, err)
			require.True(t, present)
		})
	}
	calls.Wait()
	require.ElementsMatch(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, results)
	require.Empty(t, d.Strays())
}

// What is not answered is a timeout that names the operation; the connection
// goes on, and the late reply is known as such. A second reply is not.
func TestSilence(t *testing.T) {
	var first *Received
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		if first == nil {
			first = &r
			return
		}
		send(first.UID, first.OpFrame)
		send(r.UID, r.OpFrame, []byte{4})
		send(r.UID, r.OpFrame, []byte{4})
	})
	d := dealer(t, endpoint, 50*time.Millisecond)
	_, err := d.Call(t.Context(), &EndSession{RequestID: "a"}, nil)
	var timeout *TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.True(t, IsTimeout(err))
	require.ErrorContains(t, err, "end_session (request 0) was not answered within 50ms")

	d.patience = patient
	var chunk int
	_, err = d.Call(t.Context(), &GetChunkSize{}, &chunk)
	require.NoError(t, err)
	require.Equal(t, 4, chunk)
	_, err = d.Call(t.Context(), &GetChunkSize{}, &chunk)
	require.NoError(t, err)
	strays := d.Strays()
	require.Contains(t, strays, Stray{UID: 0, Late: OpEndSession})
	require.Contains(t, strays, Stray{UID: 1})
}

// When the peer goes, every call that waits ends at once, and the next one
// dials again.
func TestDeathAndRedial(t *testing.T) {
	var seen int
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		if seen++; seen == 3 {
			send()
		} else if seen > 3 {
			send(r.UID, r.OpFrame, []byte{8})
		}
	})
	d := dealer(t, endpoint, patient)
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			_, err := d.Call(t.Context(), &Noop{}, nil)
			var lost *LostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, OpNoop, lost.Op)
			require.ErrorContains(t, err, "noop: the connection to the cache server was lost")
		})
	}
	calls.Wait()
	var chunk int
	_, err := d.Call(t.Context(), &GetChunkSize{}, &chunk)
	require.NoError(t, err)
	require.Equal(t, 8, chunk)
}

// A context that ends leaves the others and the connection alone, also when it
// is the one that reads for all.
func TestCancelledCaller(t *testing.T) {
	arrived := make(chan struct{}, 2)
	release := make(chan struct{})
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		arrived <- struct{}{}
		if r.Request.Op() == OpGetChunkSize {
			go func() { <-release; send(r.UID, r.OpFrame, []byte{16}) }()
		}
	})
	d := dealer(t, endpoint, patient)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { _, err := d.Call(ctx, &Noop{}, new(string)); cancelled <- err }()
	<-arrived
	answered := make(chan error, 1)
	var chunk int
	go func() { _, err := d.Call(t.Context(), &GetChunkSize{}, &chunk); answered <- err }()
	<-arrived
	cancel()
	require.ErrorIs(t, <-cancelled, context.Canceled)
	close(release)
	require.NoError(t, <-answered)
	require.Equal(t, 16, chunk)
}

func TestClosedPortIsRefusedAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	d := dealer(t, listener.Addr().String(), patient)
	_, err = d.Call(t.Context(), &Noop{}, nil)
	require.ErrorContains(t, err, "noop: connecting to the cache server: dial tcp")
	require.False(t, IsTimeout(err))
}

func TestAnotherProtocolIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = c.Read(make([]byte, 1024))
			_ = c.Close()
		}
	}()
	_, err = Dial(t.Context(), listener.Addr().String())
	require.ErrorIs(t, err, ErrNotZMTP)
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ endpoint, want, err string }{
		{"tcp://127.0.0.1:5555", "127.0.0.1:5555", ""},
		{"localhost:5555", "localhost:5555", ""},
		{"tcp://[::1]:1", "[::1]:1", ""},
		{"grpc://h:1", "", "only tcp://"},
		{"tcp://host", "", "want tcp://host:port"},
		{"tcp://:5555", "", "want tcp://host:port"},
		{"", "", "want tcp://host:port"},
	} {
		got, err := Address(c.endpoint)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "Address(%q)", c.endpoint)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// An error that the server reports, as releases after 0.5.6 may, is one.
func TestRemoteError(t *testing.T) {
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		body, _ := Encode(map[string]any{"error_type": "ValueError", "message": "no such thing"})
		send(r.UID, r.OpFrame, []byte(errorMarker), body)
	})
	_, err := dealer(t, endpoint, patient).Call(t.Context(), &Noop{}, new(string))
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, RemoteError{Type: "ValueError", Message: "no such thing"}, *remote)
	require.ErrorContains(t, err, "noop: the cache server reports ValueError: no such thing")
}

func TestNoConnectionAfterClose(t *testing.T) {
	d := NewDealer("127.0.0.1:1", Newest(), patient)
	require.NoError(t, d.Close())
	_, err := d.Call(t.Context(), &Noop{}, nil)
	require.True(t, errors.Is(err, ErrClosed))
}
