//go:build vllm && lmcache

package bench_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// noisyCell is long, concurrent and uneven enough for vLLM on two threads to
// differ from itself: requests of one length would meet the same neighbours
// each time.
var noisyCell = harness.TestCell{Workload: "random", Requests: 16, Concurrency: 4, InputLen: 600, OutputLen: 80, RangeRatio: 0.4}

// TestPinned: on one thread and in float32 vLLM's answers do not depend on the
// batch, and a hit from LMCache's server is the computed answer, unless a bit of
// what the server keeps is flipped.
func TestPinned(t *testing.T) {
	r := harness.Row(t, "lmcache")
	t.Run("untouched", func(t *testing.T) {
		cell, _ := harness.LiveCell(t, r, noisyCell)
		proof, findings, err := cell.Proof(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		require.Equal(t, verdict.Identical, proof.Verdict)
		require.Zero(t, verdict.NoiseOf(proof.Result.Comparison).MaxShift)
		requireExternalHits(t, proof.Result)
	})
	t.Run("a bit in each page", func(t *testing.T) { flippedPool(t, r) })
}

// TestTwoThreads: on two threads the answers depend on the batch with no cache
// involved. The control shows it, and what it shows is no fault of the cache; a
// bit flipped in each page of LMCache's memory is one all the same.
func TestTwoThreads(t *testing.T) {
	r := harness.RowOfFile(t, "testdata/lmcache-two-threads.toml")
	t.Run("untouched", func(t *testing.T) {
		cell, _ := harness.LiveCell(t, r, noisyCell)
		control, findings, err := cell.Control(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		noise := verdict.NoiseOf(*control.Recompute)
		require.Positive(t, noise.MaxShift, "there is no noise to tell damage from")

		proof, findings, err := cell.Proof(t.Context())
		require.NoError(t, err)
		comparison := proof.Result.Comparison
		t.Logf("%s: %d of %d answers match, noise %+v; recomputed %+v, by local hits %+v",
			proof.Verdict, comparison.Matches, comparison.Total, verdict.NoiseOf(comparison), noise, verdict.NoiseOf(*control.LocalHit))
		requireTied(t, findings)
		requireExternalHits(t, proof.Result)
		want := verdict.Identical
		if comparison.Matches < comparison.Total {
			want = verdict.NumericTie
		}
		require.Equal(t, want, proof.Verdict)
	})
	t.Run("a bit in each page", func(t *testing.T) { flippedPool(t, r) })
}

// flippedPool flips a bit in each page of the server's memory between the cold
// and the warm pass: the proof is corrupt, and every counter says that all is
// well.
func flippedPool(t *testing.T, r row.Row) {
	t.Helper()
	cell, server := harness.LiveCell(t, r, noisyCell)
	pool := server.Facts["lmcache-pool"]
	empty, err := os.ReadFile(pool)
	require.NoError(t, err)
	flipped := beforeWarm(t, server, func() error { return flipStored(pool, empty, 0x80) })
	proof, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	require.NoError(t, flipped())
	require.Equal(t, verdict.Corrupt, proof.Verdict)
	require.Contains(t, []row.Code{row.OutputDiffers, row.LogprobShift}, findings[0].Code, "%v", findings)
	require.Regexp(t, "token [0-9]+", findings[0].Evidence, "with the position")
	requireExternalHits(t, proof.Result)
	t.Log(run.Explain(proof.Result, ""))
}

// requireExternalHits: without hits nothing was shown.
func requireExternalHits(t *testing.T, result run.Result) {
	t.Helper()
	require.Positive(t, result.Warm.HitTokens)
	require.Equal(t, result.Warm.Expected.Total.Min, result.Warm.HitTokens)
}
