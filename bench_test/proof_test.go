package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// TestColdIsCold: in the cold pass nothing hits but what the plan itself
// shares, and in the warm pass exactly what the law of the row allows.
func TestColdIsCold(t *testing.T) {
	harness.EachCell(t, func(t *testing.T, cell *run.Cell, server *row.Server) {
		for range 2 { // fresh content each time, on a store that is not
			result, findings, err := cell.Cycle(t.Context())
			require.NoError(t, err)
			require.Empty(t, findings)
			cold, warm := result.Cold.Expected.Total, result.Warm.Expected.Total
			require.True(t, cold.Contains(result.Cold.HitTokens), "cold hits %d, expected %v", result.Cold.HitTokens, cold)
			require.True(t, warm.Exact())
			require.Equal(t, warm.Min, result.Warm.HitTokens)
			if server.Law.Unit > 0 {
				require.Positive(t, result.Warm.HitTokens, "a cache that never hits proves nothing")
			}
		}
	})
}

// TestWitnessesAgree: every witness that the row must have exists and says,
// under its own law, what usage says under its.
func TestWitnessesAgree(t *testing.T) {
	harness.EachCell(t, func(t *testing.T, cell *run.Cell, server *row.Server) {
		result, findings, err := cell.Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		for _, pass := range []run.Pass{result.Cold, result.Warm} {
			require.Len(t, pass.Witnesses, 1+len(server.Witnesses), "usage and the row's own")
		}
	})
}

// TestExactMatch: the proof, with logprobs, finds no difference. A row that is
// lossy by design has answers of its own, and delivers the KV that the model
// computes.
func TestExactMatch(t *testing.T) {
	harness.EachCell(t, func(t *testing.T, cell *run.Cell, server *row.Server) {
		proof, findings, err := cell.Proof(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		require.Equal(t, verdict.Proven, proof.Grade)
		compared := proof.Result.Comparison
		require.Positive(t, compared.Total)
		if server.KVCheck != nil {
			require.Equal(t, verdict.Lossy, proof.Verdict)
			require.Less(t, compared.Matches, compared.Total, "attention between documents was not skipped")
			require.Positive(t, proof.Result.KV.Checked)
			require.Empty(t, proof.Result.KV.Mismatches)
			return
		}
		require.Equal(t, verdict.Identical, proof.Verdict)
		require.Equal(t, compared.Total, compared.Matches)
	})
}
