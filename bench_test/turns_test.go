package bench_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
)

// TestMultiTurn: conversations go on with the very ids that were generated, and
// what each turn hits is what the oracle says. An engine that caches answers
// hits them in the next turn; a store of prompts hits the prompts before, and
// everything in the warm pass.
func TestMultiTurn(t *testing.T) {
	for _, test := range []struct {
		row         string
		concurrency int
		exact       bool // the cold pass too: what is stored can be read at once
	}{
		{"baseline", 2, true},
		{"engine-cache", 1, true},
		{"engine-cache", 3, true},
		{"lmcache", 2, false},
		{"daser-prefix", 2, false},
	} {
		t.Run("backend="+test.row, func(t *testing.T) {
			cell, server := harness.StartCell(t, harness.TestCell{
				Row: test.row, Workload: "multi-turn", Requests: 7, Turns: 3, Concurrency: test.concurrency, InputLen: 6 * settings.BlockSize, OutputLen: 40,
			})
			require.Empty(t, everything(t, cell))
			result, findings, err := cell.Cycle(t.Context())
			require.NoError(t, err)
			require.Empty(t, findings)
			require.Equal(t, result.Comparison.Total, result.Comparison.Matches)

			turns := 0
			for i, r := range result.Cold.Plan.Requests {
				require.Equal(t, result.Cold.Requests[i].Prompt, result.Warm.Requests[i].Prompt, "the warm pass asks the same")
				if r.Turn == nil {
					continue
				}
				turns++
				before := result.Cold.Plan.Requests[r.Turn.Previous]
				answer := result.Cold.Timelines[r.Turn.Previous].Tokens
				require.Len(t, answer, 40)
				require.Equal(t, slices.Concat(before.Prompt, answer, r.Turn.New), result.Cold.Requests[i].Prompt)
				require.False(t, result.Cold.Timelines[i].Sent.Before(result.Cold.Timelines[r.Turn.Previous].LastToken))
			}
			require.Equal(t, 4, turns)

			cold, warm := result.Cold.Expected.Total, result.Warm.Expected.Total
			require.True(t, warm.Exact())
			require.Equal(t, warm.Min, result.Warm.HitTokens)
			require.True(t, cold.Contains(result.Cold.HitTokens))
			if test.exact {
				require.True(t, cold.Exact(), "%v", cold)
			}
			if test.row != "baseline" {
				require.Positive(t, cold.Max, "a conversation hits itself")
				require.Positive(t, server.Law.Unit)
			}
		})
	}
}
