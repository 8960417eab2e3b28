package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
)

// TestTraces: both slices that ship replay as an open loop, faster than they
// were recorded and with a bound on what is in flight; what hits is what the
// oracle says, to the token, and each request has its lateness and both of its
// latencies. Of the 500 rows of each, those are left out that the small model's
// context does not hold at this scale.
func TestTraces(t *testing.T) {
	for workload, rows := range map[string]int{"trace": 480, "trace-synthetic": 498} {
		t.Run("workload="+workload, func(t *testing.T) {
			cell, _ := harness.StartCell(t, harness.TestCell{
				Row: "lmcache", Workload: workload, Requests: rows, Concurrency: 16, LengthScale: 1.0 / 64, Replay: 60,
			})
			result, findings, err := cell.Cycle(t.Context())
			require.NoError(t, err)
			requireNothingButLate(t, findings)
			require.True(t, result.Warm.Expected.Total.Exact())
			require.Equal(t, result.Warm.Expected.Total.Min, result.Warm.HitTokens)
			t.Logf("%d prompt tokens, cold hit %.2f %%, warm hit %.2f %%", result.Warm.PromptTokens, result.Cold.HitPercent(), result.Warm.HitPercent())

			took := result.Warm.Timelines[len(result.Warm.Timelines)-1].Scheduled.Sub(result.Warm.Timelines[0].Scheduled)
			require.Greater(t, took, time.Second, "an open loop: the last rows come long after the first")
			for _, got := range result.Warm.Timelines {
				require.False(t, got.Sent.Before(got.Scheduled))
				late, ok := got.Lateness()
				require.True(t, ok)
				wait, _ := got.QueueWait()
				require.LessOrEqual(t, late, wait)
				_, ok = got.ScheduledTTFT()
				require.True(t, ok)
			}
		})
	}
}
