package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Dealer makes calls to one server over one connection, which it dials when
// a call needs it and again after it broke. Calls may overlap; their replies
// may come in any order. A server works off the transfers of one connection
// one after the other, so clients that are to overlap there need a Dealer each.
//
// There is no goroutine behind it: of the callers that wait, one reads for all,
// so that a lone caller is woken by its own reply.
type Dealer struct {
	endpoint string
	dialect  *Dialect
	patience time.Duration

	dialing sync.Mutex // held while the connection is made

	mu      sync.Mutex
	conn    *Conn
	next    uint64
	waiting map[uint64]*waiter
	reading bool
	late    map[uint64]Op // timed out; their replies may still come
	strays  []Stray
	closed  bool
}

// A waiter is a call whose reply has not come.
type waiter struct {
	op     Op
	wake   chan struct{} // one token: a reply, a failure, or the turn to read
	done   bool
	reply  reply
	failed error
}

// A Stray is a reply that nobody waited for.
type Stray struct {
	UID  uint64
	Late Op // the call whose patience had ended; empty: no such call, or answered before
}

// NewDealer makes a dealer; it does not connect yet. No call takes longer than
// patience, which must be positive.
func NewDealer(endpoint string, dialect *Dialect, patience time.Duration) *Dealer {
	return &Dealer{
		endpoint: endpoint, dialect: dialect, patience: patience,
		waiting: map[uint64]*waiter{}, late: map[uint64]Op{},
	}
}

// Dialect is what it speaks.
func (d *Dealer) Dialect() *Dialect { return d.dialect }

// Call sends a request and waits for its reply, which it decodes into what
// result points to, of the type of [NewResult]. It reports whether the reply
// held a result: that of a request without one never does, and one that asks
// for the state of a lookup may not. An error wraps a *TimeoutError, a
// *LostError, a *RemoteError or the context's error.
func (d *Dealer) Call(ctx context.Context, r Request, result any) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience, errPatience)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.Op(), err)
	}
	uid, w, err := d.send(ctx, conn, r)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.Op(), err)
	}
	got, err := d.await(ctx, conn, uid, w)
	switch {
	case err != nil:
		return false, err
	case got.err != nil:
		return false, fmt.Errorf("%s: %w", r.Op(), got.err)
	case got.result == nil:
		return false, nil
	case result == nil:
		return false, fmt.Errorf("%s: the reply has a result of %d bytes, want none", r.Op(), len(got.result))
	}
	if err := Decode(got.result, result); err != nil {
		return false, fmt.Errorf("%s: %w", r.Op(), err)
	}
	return true, nil
}

// send registers a waiter and writes the request.
func (d *Dealer) send(ctx context.Context, conn *Conn, r Request) (uint64, *waiter, error) {
	w := &waiter{op: r.Op(), wake: make(chan struct{}, 1)}
	d.mu.Lock()
	uid := d.next
	d.next++
	d.waiting[uid] = w
	d.mu.Unlock()
	frames, err := d.dialect.EncodeRequest(uid, r)
	if err != nil {
		d.forget(uid)
		return 0, nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := errors.Join(conn.SetWriteDeadline(deadline), conn.Send(frames)); err != nil {
		d.broken(conn, err)
		d.forget(uid)
		return 0, nil, &LostError{w.op, err}
	}
	return uid, w, nil
}

func (d *Dealer) forget(uid uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, uid)
}

// await returns the reply. While it waits it reads for all, or is told.
func (d *Dealer) await(ctx context.Context, conn *Conn, uid uint64, w *waiter) (reply, error) {
	for {
		d.mu.Lock()
		if w.done {
			d.mu.Unlock()
			return w.reply, w.failed
		}
		lead := !d.reading
		d.reading = true
		d.mu.Unlock()
		if lead {
			err := d.read(ctx, conn, w)
			d.handOver()
			if err == nil {
				continue // w is done
			}
			return d.giveUp(ctx, uid, w)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return d.giveUp(ctx, uid, w)
		}
	}
}

// read delivers replies until w's has come, the connection is broken (then all
// are told), or ctx ends, which is an error.
func (d *Dealer) read(ctx context.Context, conn *Conn, w *waiter) error {
	deadline, _ := ctx.Deadline()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		d.mu.Lock()
		done := w.done
		d.mu.Unlock()
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := conn.SetReadDeadline(deadline); err != nil {
			d.broken(conn, err)
			continue
		}
		if ctx.Err() != nil { // ended between the two lines above
			return ctx.Err()
		}
		frames, err := conn.Receive()
		switch {
		case err == nil:
			d.deliver(conn, frames)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			d.broken(conn, err)
		}
		// A deadline that is not ours was that of the reader before.
	}
}

// handOver ends the turn to read and gives it to somebody who waits.
func (d *Dealer) handOver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reading = false
	for _, w := range d.waiting {
		w.notify()
		return
	}
}

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// deliver hands a reply to its call.
func (d *Dealer) deliver(conn *Conn, frames [][]byte) {
	got, err := decodeReply(frames)
	if err != nil {
		d.broken(conn, fmt.Errorf("%w: %w", ErrMalformed, err))
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w, waited := d.waiting[got.uid]
	if !waited {
		d.strays = append(d.strays, Stray{got.uid, d.late[got.uid]})
		delete(d.late, got.uid)
		return
	}
	delete(d.waiting, got.uid)
	w.done, w.reply = true, got
	w.notify()
}

// broken gives the connection up and tells all that wait.
func (d *Dealer) broken(conn *Conn, cause error) {
	_ = conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != conn {
		return
	}
	d.conn = nil
	for uid, w := range d.waiting {
		delete(d.waiting, uid)
		w.done, w.failed = true, &LostError{w.op, cause}
		w.notify()
	}
}

// giveUp ends a call whose context has ended, unless its reply has come since.
// Whoever was given the turn to read and does not take it passes it on.
func (d *Dealer) giveUp(ctx context.Context, uid uint64, w *waiter) (reply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reading {
		for other, next := range d.waiting {
			if other != uid {
				next.notify()
				break
			}
		}
	}
	if w.done {
		return w.reply, w.failed
	}
	delete(d.waiting, uid)
	d.late[uid] = w.op
	if cause := context.Cause(ctx); !errors.Is(cause, errPatience) {
		return reply{}, fmt.Errorf("%s (request %d): %w", w.op, uid, cause)
	}
	return reply{}, &TimeoutError{w.op, uid, d.patience}
}

// Strays are the replies so far that nobody waited for. Those that are on
// their way are seen when a later call reads them.
func (d *Dealer) Strays() []Stray {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Stray(nil), d.strays...)
}

// Close ends the connection; calls that wait fail. It may be called again.
func (d *Dealer) Close() error {
	d.mu.Lock()
	conn := d.conn
	d.closed = true
	d.mu.Unlock()
	if conn == nil {
		return nil
	}
	d.broken(conn, ErrClosed)
	return nil
}
