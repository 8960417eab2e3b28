package load

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A turn is what a request leaves to the one that goes on with it.
type turn struct {
	over chan struct{} // closed when the request has ended
	t    row.Timeline  // how; read only after that
	at   time.Time     // when
}

// checkTurns says what is wrong with the turns for n requests.
func (d Driver) checkTurns(n int) error {
	if d.Turns == nil {
		return nil
	}
	if len(d.Turns) != n {
		return fmt.Errorf("%d turns for %d requests", len(d.Turns), n)
	}
	for i, t := range d.Turns {
		if t.Waits && (t.Previous < 0 || t.Previous >= i) {
			return fmt.Errorf("request %d goes on with request %d, want an earlier one", i, t.Previous)
		}
	}
	return nil
}

func (d Driver) newTurns() []turn {
	if d.Turns == nil {
		return nil
	}
	turns := make([]turn, len(d.Turns))
	for i := range turns {
		turns[i].over = make(chan struct{})
	}
	return turns
}

// independent is how many requests from the first on wait for no other.
func (r *run) independent() int {
	for i, t := range r.Turns {
		if t.Waits {
			return i
		}
	}
	return len(r.requests)
}

func (r *run) waits(i int) bool { return r.Turns != nil && r.Turns[i].Waits }

// await waits for the turn before request i; false: ctx ended first.
func (r *run) await(ctx context.Context, i int) bool {
	if !r.waits(i) {
		return true
	}
	select {
	case <-r.turns[r.Turns[i].Previous].over:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// do sends request i, after the turn before it where it has one.
func (r *run) do(ctx context.Context, i int) row.Timeline {
	q := r.requests[i]
	if r.waits(i) {
		var err error
		if q, err = r.Continue(i, r.turns[r.Turns[i].Previous].t); err != nil {
			return row.Timeline{ID: r.requests[i].ID, Status: row.Cancelled, Err: fmt.Sprintf("not sent: %v", err)}
		}
	}
	return r.Client.Do(ctx, q)
}

// previousEnd is when the turn before request i ended; zero: it has none.
func (r *run) previousEnd(i int) time.Time {
	if !r.waits(i) {
		return time.Time{}
	}
	return r.turns[r.Turns[i].Previous].at
}

// passOn lets the request go on that waits for i.
func (r *run) passOn(i int, t row.Timeline) {
	if r.turns == nil {
		return
	}
	r.turns[i].t, r.turns[i].at = t, time.Now()
	close(r.turns[i].over)
}
