package harness

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// result is a cycle in which every request took cold and then warm to its
// first token.
func result(cold, warm time.Duration, hit int) run.Result {
	pass := func(ttft time.Duration, hit int) run.Pass {
		start := time.Unix(0, 0)
		t := row.Timeline{Status: row.OK, Sent: start, FirstToken: start.Add(ttft)}
		return run.Pass{Timelines: []row.Timeline{t, t}, HitTokens: hit, PromptTokens: 200}
	}
	return run.Result{Cold: pass(cold, 0), Warm: pass(warm, hit), Comparison: verdict.Comparison{Total: 2, Matches: 2}}
}

func TestTable(t *testing.T) {
	proven := run.Proof{Verdict: verdict.Identical, Grade: verdict.Proven}
	s := &session{}
	base := s.newTableRow("baseline", "unique")
	base.add(result(100*time.Millisecond, 120*time.Millisecond, 0), proven)
	cached := s.newTableRow("lmcache", "unique")
	labelled := result(110*time.Millisecond, 10*time.Millisecond, 190)
	labelled.Labels = []row.Label{row.NothingFromL2}
	cached.add(labelled, proven)
	cached.add(labelled, proven)
	failed := s.newTableRow("lmcache", "documents")
	failed.add(labelled, proven)
	failed.fail("output-differs")
	failed.fail("request-failed")
	s.newTableRow("lmcache", "trace")

	var text strings.Builder
	printTable(&text, s.table)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 5)
	for _, line := range lines {
		require.True(t, strings.HasPrefix(line, "# "), line)
	}
	require.Equal(t, strings.Fields("# baseline unique 100.0 ms 120.0 ms 0.8x - - 0.0 100.0 identical proven"), strings.Fields(lines[1]))
	require.Equal(t, strings.Fields("# lmcache unique 110.0 ms 10.0 ms 11.0x 12.0x +10% 95.0 100.0 identical proven nothing-from-l2"),
		strings.Fields(lines[2]), "against the baseline's warm pass, the tax against its cold one")
	require.Equal(t, strings.Fields("# lmcache documents - - - - - - - output-differs invalid"), strings.Fields(lines[3]), "the first reason stands")
	require.Equal(t, strings.Fields("# lmcache trace - - - - - - - not finished invalid"), strings.Fields(lines[4]))
}

// The exit code does not depend on which of -count's repeats failed.
func TestAFailedCellFailsTheRun(t *testing.T) {
	s := &session{progress: &progress{}}
	require.Zero(t, s.end())
	s.newTableRow("lmcache", "unique").add(result(2, 1, 0), run.Proof{})
	require.Zero(t, s.end())
	s.newTableRow("lmcache", "trace").fail("output-differs")
	require.Equal(t, 1, s.end())
}

// A row is worth no more than its worst cycle.
func TestTableKeepsTheWorstGrade(t *testing.T) {
	r := &tableRow{}
	r.add(result(2, 1, 0), run.Proof{Verdict: verdict.Identical, Grade: verdict.Proven})
	require.Equal(t, verdict.Proven, r.grade)
	missing := result(2, 1, 0)
	missing.Warm.Witnesses = []verdict.Line{{Outcome: verdict.Unknown}}
	r.add(missing, run.Proof{Verdict: verdict.Identical, Grade: verdict.Proven})
	require.Equal(t, verdict.Observed, r.grade)
	r.add(result(2, 1, 0), run.Proof{Verdict: verdict.Identical, Grade: verdict.Proven})
	require.Equal(t, verdict.Observed, r.grade)
}

func TestMetricsOfSeveralCycles(t *testing.T) {
	a, b := result(100*time.Millisecond, 20*time.Millisecond, 100), result(300*time.Millisecond, 40*time.Millisecond, 150)
	b.Comparison.Matches = 1
	for i, r := range []*run.Result{&a, &b} {
		r.Cold.Elapsed, r.Warm.Elapsed = time.Second, time.Second
		r.Upload = row.Upload{Documents: 3, Took: time.Duration(i+1) * time.Second}
		r.Warm.TierTokens = map[row.Tier]int{row.L1: 60, row.L2: 40, row.Evicted: 7}
	}
	values, err := metricsOf([]run.Result{a, b})
	require.NoError(t, err)
	got := make(map[string]float64)
	for _, v := range values {
		got[v.Unit] = v.Value
	}
	for unit, want := range map[string]float64{
		"cold-mean-ttft-ns": 200e6, "warm-mean-ttft-ns": 30e6, "hit-%": 62.5, "match-%": 75,
		"l1-hit-%": 30, "l2-hit-%": 20, "upload-ns": 1.5e9,
	} {
		require.InDelta(t, want, got[unit], 1e-6, unit)
	}
	require.NotContains(t, got, "", "what has no unit stays off the line")
}
