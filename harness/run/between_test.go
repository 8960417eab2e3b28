package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestBetweenPasses: what happens to the counters while the suite sends nothing.
func TestBetweenPasses(t *testing.T) {
	for name, test := range map[string]struct {
		between row.Count // what the witness says about two snapshots with nothing in between
		want    []row.Code
	}{
		"nothing":          {row.Count{State: row.Known, HasQueries: true}, nil},
		"a restart":        {row.Count{State: row.Restarted}, []row.Code{row.CounterReset}},
		"somebody's query": {row.Count{State: row.Known, HasQueries: true, Queries: 32}, []row.Code{row.ForeignTraffic}},
		"no queries known": {row.Count{State: row.Known, Queries: 32}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			server := f.server()
			count := server.Witnesses[0].Count
			server.Witnesses[0].Count = func(before, after row.Snapshot) row.Count {
				if c := count(before, after); c.Hits > 0 || len(f.log) < 8 { // a pass that hit, or the first one
					return c
				}
				if f.log[len(f.log)-1] == "snapshot" && f.log[len(f.log)-2] == "snapshot" {
					return test.between
				}
				return count(before, after)
			}
			workload, err := fixtures.ByName("unique")
			require.NoError(t, err)
			_, findings, err := run.NewCell(server, run.Config{
				Workload: workload, Concurrency: 1, Reuse: true, Exact: true,
				Params: fixtures.Params{Requests: 4, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024},
			}).Cycle(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, codes(findings))
			for _, found := range findings {
				require.Equal(t, "warm", found.Phase)
			}
		})
	}
}

// TestUnasked: misses of a cache that nobody asks are named as such.
func TestUnasked(t *testing.T) {
	f := newFake()
	f.answer = func(_ row.Request, tl *row.Timeline) { *tl.Usage.CachedTokens = 0 }
	server := f.server()
	server.Witnesses[0].Count = func(_, _ row.Snapshot) row.Count { return row.Count{State: row.Known, HasQueries: true} }
	workload, err := fixtures.ByName("unique")
	require.NoError(t, err)
	_, findings, err := run.NewCell(server, run.Config{
		Workload: workload, Concurrency: 1, Reuse: true, Reset: true, Exact: true,
		Params: fixtures.Params{Requests: 4, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024},
	}).Cycle(t.Context())
	require.NoError(t, err)
	require.Equal(t, []row.Code{row.NoQueries, row.HitBelowOracle}, codes(findings))
}
