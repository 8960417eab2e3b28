package wire

import (
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
)

// The independent other end: a ROUTER of another implementation.
func TestAgainstAnotherRouter(t *testing.T) {
	router := zmq4.NewRouter(t.Context())
	defer router.Close()
	require.NoError(t, router.Listen("tcp://127.0.0.1:0"))
	go func() {
		for {
			m, err := router.Recv()
			if err != nil {
				return
			}
			f := m.Frames // identity, uid, op, payloads
			reply := [][]byte{f[0], f[1], f[2]}
			if len(f) > 3 {
				reply = append(reply, f[3])
			}
			_ = router.SendMulti(zmq4.NewMsgFrom(reply...))
		}
	}()
	d := dealer(t, "tcp://"+router.Addr().String(), patient)
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * 7)
	}
	for _, model := range []string{"", "short", string(big)} {
		var back string
		present, err := d.Call(t.Context(), &echo{model}, &back)
		require.NoError(t, err)
		require.True(t, present)
		require.Equal(t, model, back)
	}
	_, err := d.Call(t.Context(), &UnregisterKVCache{Instance: 7}, nil)
	require.ErrorContains(t, err, "has a result of 1 bytes, want none", "the other end echoed the payload")
}

// echo is a request with one text.
type echo struct{ text string }

func (*echo) Op() Op                    { return OpEndSession }
func (e *echo) payloads(*Dialect) []any { return []any{&e.text} }
func (*echo) result() any               { return new(string) }

// And a DEALER of another implementation against our end.
func TestAnotherDealer(t *testing.T) {
	endpoint := serve(t, func(r Received, send func(...[]byte)) {
		frames, _ := r.Reply(r.Request.(*EndSession).RequestID)
		send(frames...)
	})
	other := zmq4.NewDealer(t.Context())
	defer other.Close()
	require.NoError(t, other.Dial(endpoint))
	for i := range 10 {
		frames, err := Newest().EncodeRequest(uint64(i), &EndSession{RequestID: "r"})
		require.NoError(t, err)
		require.NoError(t, other.SendMulti(zmq4.NewMsgFrom(frames...)))
		m, err := other.Recv()
		require.NoError(t, err)
		require.Equal(t, [][]byte{encoded(t, i), encoded(t, 13), encoded(t, "r")}, m.Frames)
	}
}
