package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A run is one pass over the requests.
type run struct {
	Driver
	requests []row.Request
	start    time.Time
	ended    chan ending // has room for every request: a client never waits for an observer
	turns    []turn      // by request; nil: none waits for another
	flight   flight
	working  sync.WaitGroup
}

// An ending is a request that became a timeline.
type ending struct {
	index int
	t     row.Timeline
}

// Run sends all requests and returns a timeline for each, in the order of the
// plan. When ctx ends, those in flight are the client's to end, the rest
// become Cancelled at once, and nothing is left running when Run returns. The
// error is that of a schedule that does not fit, before anything is sent.
func (d Driver) Run(ctx context.Context, requests []row.Request) ([]row.Timeline, Report, error) {
	if err := d.Schedule.check(len(requests)); err != nil {
		return nil, Report{}, err
	}
	if err := d.checkTurns(len(requests)); err != nil {
		return nil, Report{}, err
	}
	r := &run{Driver: d, requests: requests, start: time.Now(), ended: make(chan ending, len(requests)), turns: d.newTurns()}
	r.working.Go(func() { r.dispatch(ctx) }) // ends once every request has started or ctx is done

	timelines := make([]row.Timeline, len(requests))
	for range requests {
		e := <-r.ended
		timelines[e.index] = e.t
		if d.Observe != nil {
			d.Observe(e.index, e.t)
		}
	}
	r.working.Wait()
	return timelines, r.flight.report(r.start), nil
}

// dispatch starts the requests in order. Each sends exactly one ending.
//
// The first wave of a closed loop waits behind a gate until all of it is in
// flight: a server that answers faster than requests can be started would
// otherwise be measured at less than the concurrency that was asked for.
func (r *run) dispatch(ctx context.Context) {
	slots := newSlots(r.Concurrency)
	wave := 0
	if r.Schedule == nil {
		wave = min(r.Concurrency, r.independent())
	}
	gate := make(chan struct{})
	if wave == 0 {
		close(gate)
	}
	before := gate // closed when the request before this one has gone to the client
	for i := range r.requests {
		due := r.start.Add(r.Schedule.due(i))
		freed, ok := time.Time{}, until(ctx, due)
		if ok {
			ok = r.await(ctx, i)
		}
		if ok {
			freed, ok = slots.take(ctx)
		}
		if !ok {
			if i < wave {
				close(gate)
			}
			r.giveUp(ctx, i)
			return
		}
		// The next one waits until this one runs: goroutines that are
		// started at once do not run in that order by themselves.
		turn, entered, running := before, make(chan struct{}), make(chan struct{})
		r.working.Go(func() {
			r.flight.enter()
			close(entered)
			<-turn
			close(running)
			t := r.do(ctx, i)
			slots.give(r.flight.leave())
			t.Ready = later(later(due, freed), r.previousEnd(i))
			r.end(i, t)
		})
		<-entered
		before = running
		if i == wave-1 {
			close(gate)
		}
		if i >= wave-1 {
			<-running
		}
	}
}

// giveUp ends what has not started.
func (r *run) giveUp(ctx context.Context, from int) {
	for i := from; i < len(r.requests); i++ {
		r.end(i, row.Timeline{
			ID:     r.requests[i].ID,
			Status: row.Cancelled,
			Err:    fmt.Sprintf("not sent: %v", context.Cause(ctx)),
		})
	}
}

func (r *run) end(i int, t row.Timeline) {
	t.Scheduled = r.start.Add(r.Schedule.due(i))
	r.passOn(i, t)
	r.ended <- ending{i, t}
}

// A flight counts the requests that are with the client.
type flight struct {
	mu      sync.Mutex
	now     int
	peak    int
	entered int
	last    time.Time // when one left last
}

func (f *flight) enter() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entered++
	f.now++
	f.peak = max(f.peak, f.now)
}

// leave returns when that was.
func (f *flight) leave() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	f.last = time.Now()
	return f.last
}

// report is that of a run that has ended.
func (f *flight) report(start time.Time) Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.last
	if end.IsZero() {
		end = start
	}
	return Report{Start: start, End: end, Peak: f.peak, Dispatched: f.entered}
}

// slots bound how many requests are in flight; nil bounds nothing. Each slot
// that is free bears the time since when it is; zero: from the start.
type slots chan time.Time

func newSlots(n int) slots {
	if n <= 0 {
		return nil
	}
	s := make(slots, n)
	for range n {
		s <- time.Time{}
	}
	return s
}

// take waits for a slot and returns since when it was free; false: ctx ended
// first.
func (s slots) take(ctx context.Context) (freed time.Time, ok bool) {
	if s == nil || ctx.Err() != nil {
		return freed, ctx.Err() == nil
	}
	select {
	case freed = <-s:
		return freed, ctx.Err() == nil
	case <-ctx.Done():
		return freed, false
	}
}

func (s slots) give(now time.Time) {
	if s != nil {
		s <- now
	}
}

// later is the later one; the zero time is before all.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// until waits for a moment; false: ctx ended first.
func until(ctx context.Context, moment time.Time) bool {
	wait := time.Until(moment)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
