package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"time"
)

// ErrStalled is what a call ends with when the server stays silent for longer
// than Config.Stall.
var ErrStalled = errors.New("nothing arrived")

// A watchdog ends a context when nothing has happened for a while. There is
// no deadline for the request as a whole: an answer may take as long as it
// likes, provided that something arrives.
type watchdog struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// newWatchdog watches one request: limit counts from the moment at which it
// has a connection. The phases before it, dialing and the TLS handshake, are
// bounded by the transport with connect each. The caller stops it.
func newWatchdog(ctx context.Context, connect, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{cancel: cancel, limit: limit}
	w.timer = time.AfterFunc(2*connect+limit, func() {
		cancel(fmt.Errorf("%w within %v", ErrStalled, limit))
	})
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { w.alive() },
	}), w
}

// alive says that something happened.
func (w *watchdog) alive() { w.timer.Reset(w.limit) }

// hurry allows no more than d for what is left.
func (w *watchdog) hurry(d time.Duration) {
	w.limit = min(w.limit, d)
	w.timer.Reset(w.limit)
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// watched is a source whose every arrival of bytes the watchdog hears of.
type watched struct {
	io.Reader
	dog *watchdog
}

func (r watched) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.dog.alive()
	}
	return n, err
}
