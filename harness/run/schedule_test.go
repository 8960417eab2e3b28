package run

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/row"
)

// slow is a server that holds so many requests per second for each slot that
// it is given.
type slow struct{ service time.Duration }

func (s slow) Do(_ context.Context, q row.Request) row.Timeline {
	t := row.Timeline{ID: q.ID, Status: row.OK, Sent: time.Now()}
	<-time.After(s.service)
	t.FirstToken = time.Now()
	t.LastToken, t.End = t.FirstToken, t.FirstToken
	return t
}

// offer sends n requests at a rate, at most concurrency in flight, to a server
// that takes service for each. Time is that of the bubble.
func offer(t *testing.T, rate float64, burstiness float64, n, concurrency int, service time.Duration) []row.Timeline {
	t.Helper()
	schedule := load.Arrivals{Rate: rate, Burstiness: burstiness, Seed: 42}.Schedule(n)
	timelines, _, err := load.Driver{Client: slow{service}, Concurrency: concurrency, Schedule: schedule}.Run(t.Context(), make([]row.Request, n))
	require.NoError(t, err)
	return timelines
}

func TestOpenLoop(t *testing.T) {
	for _, test := range []struct {
		name        string
		rate        float64
		burstiness  float64
		concurrency int
		finding     bool
		label       bool
	}{
		// Each request takes 100 ms: a slot holds 10 per second.
		{"kept", 5, 1, 4, false, false},
		{"kept in bursts", 5, 0.25, 4, false, false},
		{"one slot, half used", 5, 1, 1, false, false},
		{"twice what one slot holds", 20, 1, 1, true, true},
		{"twice what four slots hold", 80, 1, 4, true, true},
		{"the server queues", 80, 1, 1000, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timelines := offer(t, test.rate, test.burstiness, 200, test.concurrency, 100*time.Millisecond)
				found := onSchedule("cold", timelines, false)
				require.Equal(t, test.finding, len(found) > 0, "%v", found)
				require.Equal(t, test.label, queueDominated(timelines))
				require.Empty(t, onSchedule("cold", timelines, true), "a replay shows the wait and asked for no rate")
				for _, f := range found {
					require.Equal(t, row.LoadNotDelivered, f.Code)
					require.Contains(t, f.Evidence, "TTFT is 100ms from the send")
				}
			})
		})
	}
}

// TestOverload: at a rate that the server cannot hold, the latency from the
// schedule grows with every request and that from the send stays as it is.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timelines := offer(t, 40, 1, 400, 2, 100*time.Millisecond)
		tenth := func(i int) (send, schedule time.Duration) {
			for _, got := range timelines[40*i : 40*(i+1)] {
				s, _ := got.TTFT()
				d, _ := got.ScheduledTTFT()
				send, schedule = send+s/40, schedule+d/40
			}
			return send, schedule
		}
		_, before := tenth(0)
		for i := 1; i < 10; i++ {
			send, schedule := tenth(i)
			require.Equal(t, 100*time.Millisecond, send)
			require.Greater(t, schedule, before)
			before = schedule
		}
		require.Greater(t, before, 5*time.Second)
	})
}

// A client that is late itself spoils any schedule, a replay too.
func TestLateClient(t *testing.T) {
	start := time.Unix(0, 0)
	pass := func(late time.Duration) (timelines []row.Timeline) {
		for i := range 20 {
			due := start.Add(time.Duration(i) * 50 * time.Millisecond)
			timelines = append(timelines, row.Timeline{Status: row.OK, Scheduled: due, Ready: due, Sent: due.Add(late)})
		}
		return timelines
	}
	for _, replay := range []bool{false, true} {
		require.Empty(t, onSchedule("warm", pass(9*time.Millisecond), replay), "no machine is blamed for so little")
		require.Len(t, onSchedule("warm", pass(11*time.Millisecond), replay), 1)
	}
	require.Empty(t, onSchedule("warm", nil, false))
	require.Empty(t, onSchedule("warm", make([]row.Timeline, 5), false), "what was not sent has other findings")
}
