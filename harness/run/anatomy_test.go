package run_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// timed is a fake whose requests take known times, and whose server says what
// it made of them: seconds for each request.
func timed(queue, prefill, load float64, counted float64) (*fake, *row.Server) {
	f := newFake()
	sent := 0.0
	f.answer = func(_ row.Request, tl *row.Timeline) {
		sent++
		due := tl.Sent
		tl.Scheduled, tl.Sent = due, due.Add(10*time.Millisecond)
		tl.Connected, tl.FirstToken = due.Add(11*time.Millisecond), due.Add(110*time.Millisecond)
		tl.LastToken, tl.End = tl.FirstToken, tl.FirstToken
	}
	server := f.server()
	server.TokenBytes = 1000
	server.Anatomy = &row.Anatomy{Probe: "engine", Requests: "n", Queue: "queue", Prefill: "prefill", Load: "load"}
	server.Probes = []row.Probe{told{f, func() []row.Series {
		return []row.Series{{Name: "n", Value: sent * counted}, {Name: "queue", Value: sent * queue}, {Name: "prefill", Value: sent * prefill}, {Name: "load", Value: sent * load}}
	}}}
	server.Witnesses[0].Name = "bytes"
	return f, server
}

// told is a probe that tells more.
type told struct {
	*fake
	more func() []row.Series
}

func (p told) Snapshot(ctx context.Context) (row.Snapshot, error) {
	s, err := p.fake.Snapshot(ctx)
	s.Series = append(s.Series, p.more()...)
	return s, err
}

// TestAnatomy: the parts are those of both sides, and add up to TTFT.
func TestAnatomy(t *testing.T) {
	anatomy := func(server *row.Server) (*run.Anatomy, []row.Label) {
		workload, err := fixtures.ByName("unique")
		require.NoError(t, err)
		result, findings, err := run.NewCell(server, run.Config{
			Workload: workload, Concurrency: 1, Reuse: true, Exact: true,
			Params: fixtures.Params{Requests: 3, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024},
		}).Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		return result.Warm.Anatomy, result.Labels
	}
	_, server := timed(0.02, 0.06, 0.04, 1)
	a, labels := anatomy(server)
	require.Empty(t, labels)
	near := func(want float64, got *float64) {
		t.Helper()
		require.NotNil(t, got)
		require.InDelta(t, want, *got, 1e-6)
	}
	require.Zero(t, a.ClientQueue, "a closed loop has no queue of its own")
	near(100, &a.TTFT)
	near(1, &a.Connect)
	near(20, a.ServerQueue)
	near(40, a.KVLoad)
	near(20, a.Prefill)
	near(19, &a.FirstChunk)
	near(a.TTFT, sum(a.ClientQueue, a.Connect, *a.ServerQueue, *a.KVLoad, *a.Prefill, a.FirstChunk))
	near(96*1000/(3*0.04), a.LoadBytesPerSecond) // three requests that hit 32 tokens each

	_, server = timed(0.02, 0.06, 0.04, 2) // somebody else's requests are in the sums
	a, _ = anatomy(server)
	require.Nil(t, a.ServerQueue)
	require.Nil(t, a.LoadBytesPerSecond)
	near(99, &a.FirstChunk)

	_, server = timed(0.02, 0.2, 0.04, 1) // more than the client saw pass
	_, labels = anatomy(server)
	require.Equal(t, []row.Label{row.TimeDisagrees}, labels)

	f, server := timed(0.02, 0.06, 0.04, 1)
	inner := f.answer
	f.answer = func(r row.Request, tl *row.Timeline) {
		if inner(r, tl); strings.Contains(r.ID, "-warm-1") {
			tl.FirstToken = time.Time{}
		}
	}
	a, _ = anatomy(server)
	require.Nil(t, a, "a request without a first token")
}

func sum(parts ...float64) *float64 {
	total := 0.0
	for _, p := range parts {
		total += p
	}
	return &total
}
