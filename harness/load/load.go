// Package load drives a client with the requests of a plan and returns what
// became of each.
//
//	timelines, report := load.Closed(ctx, client, requests, 16, func(i int, t row.Timeline) {
//		appendLine(artifact, t) // as they end, so that a run that dies keeps them
//	})
//	if report.Peak < min(len(requests), 16) { … } // the load asked for was not delivered
//
// Two clocks run: Timeline.Scheduled is when the schedule wanted a request
// sent, Timeline.Sent is when the client sent it. The wait for a free slot
// lies between them and is in no TTFT; a server that cannot keep up shows it
// only in the latency from the schedule. Timeline.Ready, when a request was due
// and had a slot, tells that wait from the driver's own lateness.
//
// Schedules are absolute, so being late once delays nobody else:
//
//	driver := load.Driver{Client: client, Concurrency: 64, Schedule: load.Arrivals{Rate: 20, Burstiness: 1, Seed: 42}.Schedule(len(requests))}
//	timelines, report, err := driver.Run(ctx, requests)
package load

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A Schedule holds, for each request, when it is due after the start of the
// pass, in ascending order. Nil makes all due at the start, as a closed loop
// does: there the wait for a slot is the work of the slots before it.
type Schedule []time.Duration

// due is the offset of the i-th request.
func (s Schedule) due(i int) time.Duration {
	if s == nil {
		return 0
	}
	return s[i]
}

// check says what is wrong with a schedule for n requests.
func (s Schedule) check(n int) error {
	if s == nil {
		return nil
	}
	if len(s) != n {
		return fmt.Errorf("schedule has %d offsets for %d requests", len(s), n)
	}
	for i, offset := range s {
		if offset < 0 || (i > 0 && offset < s[i-1]) {
			return fmt.Errorf("schedule has offset %v for request %d, want ascending ones from 0", offset, i)
		}
	}
	return nil
}

// An Observer hears of each request as it ends, in order of ending, with its
// index in the plan. Calls never overlap, and a slow one delays no request.
type Observer func(index int, t row.Timeline)

// A Driver sends requests by a schedule.
type Driver struct {
	Client      row.Client
	Concurrency int      // most requests in flight; 0: no limit
	Schedule    Schedule // nil: all due at the start
	Observe     Observer // nil: nobody listens

	// Turns says which requests go on with another; nil: none does. Such a
	// request starts only once that one has ended, in place of what the plan
	// has it is what Continue returns, and if that is an error it is not sent.
	// The requests of the first wave of a closed loop go on with none.
	Turns    []Turn
	Continue func(index int, previous row.Timeline) (row.Request, error)
}

// A Turn says what a request waits for.
type Turn struct {
	Waits    bool
	Previous int // index of the earlier request
}

// A Report is what the driver itself did.
type Report struct {
	Start      time.Time
	End        time.Time // when the last request had ended; Start if none was sent
	Peak       int       // most requests in flight at one time
	Dispatched int       // requests handed to the client
}

// Closed keeps at most concurrency requests in flight: they start in the
// order of the plan, the next one when one ends. It panics if concurrency is
// not positive.
func Closed(ctx context.Context, client row.Client, requests []row.Request, concurrency int, observe ...Observer) ([]row.Timeline, Report) {
	if concurrency < 1 {
		panic(fmt.Sprintf("load: concurrency %d of a closed loop, want at least 1", concurrency))
	}
	driver := Driver{Client: client, Concurrency: concurrency, Observe: func(index int, t row.Timeline) {
		for _, observer := range observe {
			observer(index, t)
		}
	}}
	timelines, report, err := driver.Run(ctx, requests)
	if err != nil {
		panic("load: " + err.Error()) // only a schedule is refused, and there is none
	}
	return timelines, report
}
