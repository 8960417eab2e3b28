package bench_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/row"
)

// TestOpenLoop: at a rate that the stack holds, a cycle is as valid as in a
// closed loop, and its requests have both latencies.
func TestOpenLoop(t *testing.T) {
	cell, _ := harness.StartCell(t, harness.TestCell{
		Row: "lmcache", Requests: 6, Concurrency: 6, Arrivals: &load.Arrivals{Rate: 20, Burstiness: math.Inf(1)},
	})
	result, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	requireNothingButLate(t, findings)
	require.InDelta(t, 20, result.Warm.Offered, 1e-9)
	for i, got := range result.Warm.Timelines {
		require.Equal(t, time.Duration(i)*50*time.Millisecond, got.Scheduled.Sub(result.Warm.Timelines[0].Scheduled), "each is due when the schedule says")
		require.False(t, got.Sent.Before(got.Scheduled), "and not sent before")
		send, _ := got.TTFT()
		schedule, ok := got.ScheduledTTFT()
		require.True(t, ok)
		require.GreaterOrEqual(t, schedule, send)
	}
}

// requireNothingButLate passes over the one finding that says that this machine
// was too busy to keep a schedule: how busy it is is no property of the code.
func requireNothingButLate(t *testing.T, findings []row.Finding) {
	t.Helper()
	for _, f := range findings {
		require.Equal(t, row.LoadNotDelivered, f.Code, "%v", f)
		require.Contains(t, f.Evidence, "after they were due and had a slot", "%v", f)
	}
}

// TestOverload: at a rate that the stack cannot hold, requests wait for their
// slot. Latency from the send does not show it, latency from the schedule does,
// the cycle is labelled, and that less was delivered than asked is named.
func TestOverload(t *testing.T) {
	cell, _ := harness.StartCell(t, harness.TestCell{
		Row: "baseline", Requests: 12, Concurrency: 1, Arrivals: &load.Arrivals{Rate: 1e5, Burstiness: 1, Seed: 42},
	})
	result, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	for _, f := range findings {
		require.Equal(t, row.LoadNotDelivered, f.Code, "%v", f)
	}
	require.Contains(t, result.Labels, row.QueueDominated)
	for i, got := range result.Cold.Timelines {
		if i == 0 {
			continue
		}
		before, _ := result.Cold.Timelines[i-1].ScheduledTTFT()
		schedule, _ := got.ScheduledTTFT()
		send, _ := got.TTFT()
		require.Greater(t, schedule, before, "each waits for all before it")
		require.Greater(t, schedule, send)
	}
}

// TestRate: an open loop reports latencies from the schedule beside those from
// the send, how late the client was, and what the schedule offered.
func TestRate(t *testing.T) {
	results := t.TempDir()
	var stderr bytes.Buffer
	args := append([]string{"-backend=baseline", "-workload=unique", "-rate=2", "-burstiness=4", "-concurrency=3", "-results=" + results}, small...)
	cmd := suite(t.Context(), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, stderr.String())
	reader := benchfmt.NewReader(bytes.NewReader(out), "out")
	lines := 0
	for reader.Scan() {
		syntax, broken := reader.Result().(*benchfmt.SyntaxError)
		require.False(t, broken, "%v", syntax)
		record, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // a Unit line
		}
		lines++
		require.Equal(t, "2,burstiness=4", record.GetConfig("rate"))
		for _, phase := range []string{"cold", "warm"} {
			for _, unit := range []string{
				"-mean-ttft-sec", "-mean-scheduled-ttft-sec", "-p50-ttft-sec", "-p50-scheduled-ttft-sec", "-p50-e2e-sec", "-p50-scheduled-e2e-sec",
				"-mean-queue-sec", "-p50-late-sec", "-max-late-sec", "-req/s", "-offered-req/s",
			} {
				_, ok := record.Value(phase + unit)
				require.True(t, ok, "no %s%s", phase, unit)
			}
		}
	}
	require.Equal(t, 1, lines)
}
