package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// A server stands in for a client and its server: it takes as long as the
// request says and notes what happens. Time is that of a synctest bubble.
type server struct {
	service func(id string) time.Duration // until the only token
	rest    time.Duration                 // from there to the end of the answer
	deaf    bool                          // does not heed the context

	mu      sync.Mutex
	started []string
	now     int
	peak    int
}

func (s *server) Do(ctx context.Context, q row.Request) row.Timeline {
	s.mu.Lock()
	s.started = append(s.started, q.ID)
	s.now++
	s.peak = max(s.peak, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	t := row.Timeline{ID: q.ID, Status: row.OK, Sent: time.Now()}
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(s.service(q.ID)):
		t.FirstToken = time.Now()
		<-time.After(s.rest)
	case <-ctx.Done():
		t.Status, t.Err = row.Cancelled, context.Cause(ctx).Error()
	}
	t.End = time.Now()
	return t
}

func constant(d time.Duration) func(string) time.Duration {
	return func(string) time.Duration { return d }
}

func requests(n int) []row.Request {
	var out []row.Request
	for i := range n {
		out = append(out, row.Request{ID: fmt.Sprintf("r-%02d", i)})
	}
	return out
}

func ids(requests []row.Request) []string {
	var out []string
	for _, r := range requests {
		out = append(out, r.ID)
	}
	return out
}

func TestClosedKeepsOrderAndConcurrency(t *testing.T) {
	tests := []struct{ requests, concurrency, peak int }{
		{0, 1, 0}, {1, 1, 1}, {5, 1, 1}, {7, 3, 3}, {3, 3, 3}, {2, 16, 2}, {40, 16, 16},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d requests, %d at a time", tt.requests, tt.concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &server{service: constant(time.Second)}
				plan := requests(tt.requests)
				timelines, report := Closed(t.Context(), fake, plan, tt.concurrency)
				require.Len(t, timelines, tt.requests)
				for i, got := range timelines {
					require.Equal(t, plan[i].ID, got.ID)
					require.Equal(t, row.OK, got.Status)
					require.Equal(t, report.Start, got.Scheduled, "all are due at the start")
				}
				require.Equal(t, tt.peak, report.Peak)
				require.Equal(t, tt.peak, fake.peak)
				require.Equal(t, tt.requests, report.Dispatched)
				waves := (tt.requests + tt.concurrency - 1) / tt.concurrency
				require.Equal(t, time.Duration(waves)*time.Second, report.End.Sub(report.Start))
				if tt.concurrency == 1 {
					require.Equal(t, ids(plan), fake.started)
				}
			})
		})
	}
}

// The next request of the plan starts when one ends, whichever that is.
func TestClosedRefillsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := map[string]time.Duration{"r-00": 10, "r-01": 3, "r-02": 4, "r-03": 1, "r-04": 5, "r-05": 1}
		fake := &server{service: func(id string) time.Duration { return service[id] * time.Second }}
		var order []int
		timelines, report := Closed(t.Context(), fake, requests(6), 2, func(i int, _ row.Timeline) { order = append(order, i) })
		var waits []time.Duration
		for _, got := range timelines {
			wait, ok := got.QueueWait()
			require.True(t, ok)
			waits = append(waits, wait/time.Second)
			first, ok := got.TTFT()
			require.True(t, ok)
			require.Equal(t, service[got.ID]*time.Second, first, "the wait for a slot is not in TTFT")
			scheduled, ok := got.ScheduledTTFT()
			require.True(t, ok)
			require.Equal(t, wait+first, scheduled)
		}
		require.Equal(t, []time.Duration{0, 0, 3, 7, 8, 10}, waits)
		require.Equal(t, []int{1, 2, 3, 0, 5, 4}, order, "observers hear of requests as they end")
		require.Equal(t, 13*time.Second, report.End.Sub(report.Start))
		require.Equal(t, []string{"r-02", "r-03", "r-04", "r-05"}, fake.started[2:])
	})
}

// A schedule that the server cannot keep up with: from the send all looks
// flat, only the latency from the schedule grows. (The figures are those of
// the case events-05: one token after 400 ms, the slot free after 500.)
func TestScheduleShowsBothClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		fake := &server{service: constant(400 * ms), rest: 100 * ms}
		driver := Driver{Client: fake, Concurrency: 1, Schedule: Schedule{0, 100 * ms, 200 * ms, 300 * ms}}
		timelines, report, err := driver.Run(t.Context(), requests(4))
		require.NoError(t, err)
		var lag, fromSend, fromSchedule []time.Duration
		for _, got := range timelines {
			late, ok := got.Lateness()
			require.True(t, ok)
			require.Zero(t, late, "waiting for a slot is not the driver's lateness")
			wait, _ := got.QueueWait()
			send, _ := got.TTFT()
			schedule, _ := got.ScheduledTTFT()
			lag, fromSend, fromSchedule = append(lag, wait/ms), append(fromSend, send/ms), append(fromSchedule, schedule/ms)
		}
		require.Equal(t, []time.Duration{400, 400, 400, 400}, fromSend)
		require.Equal(t, []time.Duration{0, 400, 800, 1200}, lag)
		require.Equal(t, []time.Duration{400, 800, 1200, 1600}, fromSchedule)
		require.Equal(t, 1, report.Peak)
	})
}

// Without a limit each request goes out when it is due.
func TestScheduleWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offsets := Schedule{time.Second, time.Second, 3 * time.Second, 10 * time.Second}
		fake := &server{service: constant(4 * time.Second)}
		timelines, report, err := Driver{Client: fake, Schedule: offsets}.Run(t.Context(), requests(4))
		require.NoError(t, err)
		for i, got := range timelines {
			require.Equal(t, offsets[i], got.Sent.Sub(report.Start))
			require.Equal(t, got.Sent, got.Scheduled)
		}
		require.Equal(t, 3, report.Peak)
		require.Equal(t, 14*time.Second, report.End.Sub(report.Start))
	})
}

func TestBadSchedules(t *testing.T) {
	tests := []struct {
		schedule Schedule
		want     string
	}{
		{Schedule{}, "schedule has 0 offsets for 2 requests"},
		{Schedule{0, 1, 2}, "schedule has 3 offsets for 2 requests"},
		{Schedule{5, 4}, "offset 4ns for request 1"},
		{Schedule{-1, 4}, "offset -1ns for request 0"},
	}
	for _, tt := range tests {
		fake := &server{service: constant(0)}
		_, _, err := Driver{Client: fake, Schedule: tt.schedule}.Run(t.Context(), requests(2))
		require.ErrorContains(t, err, tt.want)
		require.Empty(t, fake.started)
	}
	require.PanicsWithValue(t, "load: concurrency 0 of a closed loop, want at least 1", func() {
		Closed(t.Context(), &server{}, nil, 0)
	})
}

// The end of the context ends the pass: what runs is cancelled, what waits is
// not sent, what ended stays. A leftover goroutine would fail the bubble.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		fake := &server{service: constant(2 * time.Second)}
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("ctrl-C")) })
		began := time.Now()
		seen := map[int]row.Status{}
		timelines, report := Closed(ctx, fake, requests(6), 2, func(i int, got row.Timeline) { seen[i] = got.Status })
		require.Equal(t, 3*time.Second, time.Since(began), "it ends at once")
		require.Equal(t, 4, report.Dispatched)
		for i, got := range timelines {
			want := row.OK
			if i >= 2 {
				want = row.Cancelled
				require.Contains(t, got.Err, "ctrl-C")
			}
			require.Equal(t, want, got.Status)
			require.Equal(t, want, seen[i])
			require.Equal(t, fmt.Sprintf("r-%02d", i), got.ID)
			require.Equal(t, report.Start, got.Scheduled)
			require.Equal(t, i >= 4, got.Sent.IsZero(), "a request that was not sent has no send time")
		}
		require.Len(t, seen, 6)
		require.Zero(t, fake.now)
	})
}

func TestCancelBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fake := &server{service: constant(0)}
	timelines, report := Closed(ctx, fake, requests(3), 2)
	require.Empty(t, fake.started)
	require.Zero(t, report.Dispatched)
	require.Equal(t, report.Start, report.End)
	for _, got := range timelines {
		require.Equal(t, row.Cancelled, got.Status)
	}
}

// A request that is not due yet is not waited for.
func TestCancelWhileNothingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fake := &server{service: constant(0)}
		began := time.Now()
		timelines, _, err := Driver{Client: fake, Schedule: Schedule{0, time.Hour}}.Run(ctx, requests(2))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, []row.Status{row.OK, row.Cancelled}, []row.Status{timelines[0].Status, timelines[1].Status})
	})
}

// A client that does not heed the context is waited for: its requests are
// still out there.
func TestCancelWaitsForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fake := &server{service: constant(5 * time.Second), deaf: true}
		began := time.Now()
		timelines, report := Closed(ctx, fake, requests(3), 2)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, 2, report.Dispatched)
		require.Equal(t, row.Cancelled, timelines[2].Status)
	})
}

// An observer that takes its time delays nobody.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &server{service: constant(time.Second)}
		inside := 0
		_, report := Closed(t.Context(), fake, requests(4), 1, func(int, row.Timeline) {
			inside++
			require.Equal(t, 1, inside)
			<-time.After(time.Minute)
			inside--
		})
		require.Equal(t, 4*time.Second, report.End.Sub(report.Start))
	})
}

// The first wave reaches the client in the order of the plan too, though its
// requests start at the same moment: each is let go only once the one before
// it runs. The last step into the client is the scheduler's, so most of many
// tries must be in order, where without that next to none would be.
func TestFirstWaveInOrder(t *testing.T) {
	const tries, wave = 200, 8
	inOrder := 0
	for range tries {
		fake := &server{service: constant(time.Millisecond)}
		synctest.Test(t, func(t *testing.T) { Closed(t.Context(), fake, requests(wave), wave) })
		if slices.IsSorted(fake.started) {
			inOrder++
		}
	}
	t.Logf("in order %d of %d times", inOrder, tries)
	require.Greater(t, inOrder, tries/2, "in order %d of %d times", inOrder, tries)
}
