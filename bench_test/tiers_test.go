package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestTiers: on a working set of 1.25 times L1 the hits split over L1 and L2 as
// the oracle's model of the store says, and the outputs do not change.
func TestTiers(t *testing.T) {
	for _, name := range []string{"lmcache", "daser-prefix"} {
		t.Run("backend="+name, func(t *testing.T) {
			cell, _ := harness.StartCell(t, harness.TestCell{Row: name, L1Share: 0.8, Requests: 6, Concurrency: 1})
			for range 2 {
				result, findings, err := cell.Cycle(t.Context())
				require.NoError(t, err)
				require.Empty(t, findings)
				l1, l2 := result.Warm.TierTokens[row.L1], result.Warm.TierTokens[row.L2]
				require.Positive(t, l1)
				require.Positive(t, l2)
				require.GreaterOrEqual(t, l1+l2, result.Warm.HitTokens, "lookups count no less than the engine uses")
				require.Equal(t, result.Comparison.Total, result.Comparison.Matches)
				require.Empty(t, result.Labels)
				witnesses := append(result.Cold.Witnesses, result.Warm.Witnesses...)
				for _, line := range witnesses {
					require.True(t, line.Expected.Exact(), "%s: %v", line.Witness, line.Expected)
				}
			}
		})
	}
}

// TestTiersInAnyOrder: with requests in flight together the oracle gives
// bounds, which hold.
func TestTiersInAnyOrder(t *testing.T) {
	for _, name := range []string{"lmcache", "daser-prefix", "daser-chunk"} {
		t.Run("backend="+name, func(t *testing.T) {
			cell, _ := harness.StartCell(t, harness.TestCell{Row: name, Workload: "documents", L1Share: 0.8, Requests: 6, Concurrency: 3})
			require.Empty(t, everything(t, cell))
		})
	}
}

// TestNothingFromL2: a second tier that nothing came from is named.
func TestNothingFromL2(t *testing.T) {
	cell, _ := harness.StartCell(t, harness.TestCell{Row: "lmcache", L1Share: 4})
	result, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, []row.Label{row.NothingFromL2}, result.Labels)
}

// TestRecomposed: documents in another order hit whole in chunk reuse, and only
// up to their first difference in prefix reuse.
func TestRecomposed(t *testing.T) {
	warm := func(name string) run.Pass {
		cell, _ := harness.StartCell(t, harness.TestCell{Row: name, Workload: "recomposed"})
		result, findings, err := cell.Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		return result.Warm
	}
	b := settings.BlockSize
	prefix, chunk := warm("daser-prefix"), warm("daser-chunk")
	for i, request := range prefix.Requests {
		require.Equal(t, request.Prompt, chunk.Requests[i].Prompt, "both rows are asked the same")
		question := len(request.Parts.Question)
		cached, ok := prefix.Timelines[i].Cached()
		require.True(t, ok)
		require.Equal(t, b, cached, "the system prefix and no more")
		cached, ok = chunk.Timelines[i].Cached()
		require.True(t, ok)
		require.Equal(t, len(request.Prompt)-question, cached, "all but the question")
	}
}
