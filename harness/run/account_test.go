package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// TestWork: a hit that is reported and computed again, and work that was left
// out, show in what the engine did.
func TestWork(t *testing.T) {
	for name, test := range map[string]struct {
		factor float64
		state  row.State
		want   []row.Code
	}{
		"as needed":      {1, row.Known, nil},
		"computed again": {1.5, row.Known, []row.Code{row.WorkDiffers}},
		"left out":       {0.9, row.Known, []row.Code{row.WorkDiffers}},
		"says nothing":   {1, row.Absent, []row.Code{row.WitnessMissing}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			needed := 0.0
			work := func(prompt, cached, output int) float64 { return float64(prompt - cached + output) }
			f.answer = func(_ row.Request, tl *row.Timeline) {
				needed += work(tl.Usage.PromptTokens, *tl.Usage.CachedTokens, tl.Usage.CompletionTokens)
			}
			server := f.server()
			last := 0.0
			server.Work = &row.Work{Source: "flops", Probe: "engine", Expected: work, Count: func(_, _ row.Snapshot) row.Count {
				done := needed - last
				last = needed
				return row.Count{Hits: done * test.factor, State: test.state}
			}}
			workload, err := fixtures.ByName("unique")
			require.NoError(t, err)
			_, findings, err := run.NewCell(server, run.Config{
				Workload: workload, Concurrency: 1, Reuse: true, Exact: true,
				Params: fixtures.Params{Requests: 3, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024},
			}).Cycle(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, codes(findings))
		})
	}
}

// TestRowsAreHeldToTheBaseline: a row that answers something else than a row
// without a cache did, in its cold pass and in its warm pass alike.
func TestRowsAreHeldToTheBaseline(t *testing.T) {
	answers := &run.Answers{}
	shared := func(c *run.Config) { c.Answers = answers }
	base := newFake()
	base.answer = func(_ row.Request, tl *row.Timeline) { *tl.Usage.CachedTokens = 0 }
	server := base.server()
	server.Law, server.Witnesses = fixtures.NoReuse(), nil
	workload, err := fixtures.ByName("unique")
	require.NoError(t, err)
	config := run.Config{
		Workload: workload, Concurrency: 2, Exact: true, Answers: answers,
		Params: fixtures.Params{Requests: 3, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024, Seed: 1},
	}
	_, findings, err := run.NewCell(server, config).Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)

	_, findings, err = newFake().cell(t, shared).Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings, "the same answers")

	wrong := newFake()
	wrong.answer = func(r row.Request, tl *row.Timeline) {
		if strings.HasSuffix(r.ID, "-1") {
			tl.Tokens[3] = 8
		}
	}
	_, findings, err = wrong.cell(t, shared).Cycle(t.Context())
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, row.OutputDiffers, findings[0].Code)
	require.Equal(t, "cold", findings[0].Phase)
}

// TestNothingToHit: a row whose plan is too short for its blocks proves nothing
// about its cache.
func TestNothingToHit(t *testing.T) {
	f := newFake()
	result, findings, err := f.cell(t, func(c *run.Config) { c.Params.InputLen = block }).Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, []row.Label{row.NoHits}, result.Labels)
	require.Equal(t, verdict.Observed, result.Grade())
}
