package openai

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// The stamps of a request stand still once the next one has the connection,
// and an end without bytes moves none.
func TestExchangesAreApart(t *testing.T) {
	here, there := net.Pipe()
	conn := &stampedConn{Conn: here}
	read := func(n int) {
		go there.Write(make([]byte, n))
		got, err := conn.Read(make([]byte, n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	read(1) // before any request
	first := conn.begin()
	at, reads := first.stamp()
	require.True(t, at.IsZero())
	require.Zero(t, reads)
	read(2)
	read(3)
	at, reads = first.stamp()
	require.False(t, at.IsZero())
	require.Equal(t, 2, reads)

	second := conn.begin()
	read(4)
	require.NoError(t, there.Close())
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	again, reads := first.stamp()
	require.Equal(t, at, again)
	require.Equal(t, 2, reads)
	_, reads = second.stamp()
	require.Equal(t, 1, reads)
}

// A mute connection breaks at the first byte of its second request.
type mute struct {
	net.Conn
	requests atomic.Int32
}

func (m *mute) Write(p []byte) (int, error) {
	if m.requests.Add(1) > 1 {
		return 0, errors.New("broken pipe")
	}
	return m.Conn.Write(p)
}

// What net/http does repeat: a request of which no byte was written, because
// the connection was dead already. It goes out once, on another connection,
// and the timeline shows that one.
func TestNothingWrittenIsRepeated(t *testing.T) {
	var seen atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		seen.Add(1)
		shortAnswer(w)
	})
	client := newClient(t, Config{BaseURL: server.URL, Concurrency: 1})
	transport := client.timed.Transport.(*http.Transport)
	dial := transport.DialContext
	dials := 0
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if dials++; dials == 1 && err == nil {
			over := conn.(*stampedConn)
			over.Conn = &mute{Conn: over.Conn}
		}
		return conn, err
	}
	for range 2 {
		got := client.Do(t.Context(), shortRequest("r"))
		require.Equal(t, row.OK, got.Status, got.Err)
		require.Equal(t, []int32{9, 10}, got.Tokens)
		require.False(t, got.FirstToken.Before(got.Connected))
	}
	require.Equal(t, int32(2), seen.Load())
	require.Equal(t, 2, dials)
}
