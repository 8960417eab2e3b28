package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"
	"time"
)

// drainLimit is how long running requests may take to end after a signal.
const drainLimit = 15 * time.Second

// A closer is up until it is closed.
type closer interface{ Close(context.Context) error }

// serveUntilSignal starts something for kvproof mini and closes it when a signal
// comes or ctx ends. A second signal kills it. What start has to say about
// draining it says in the function that it returns; nil: nothing.
func serveUntilSignal(ctx context.Context, errs io.Writer, start func(context.Context) (s closer, draining func(), err error)) int {
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	s, draining, err := start(ctx)
	if err != nil {
		say(errs, "kvproof mini: %v\n", err)
		return exitFailed
	}
	<-ctx.Done()
	restore()
	if draining != nil {
		draining()
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := s.Close(closing); err != nil {
		say(errs, "kvproof mini: %v\n", err)
		return exitFailed
	}
	return exitOK
}
