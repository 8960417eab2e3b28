//go:build lmcache && !vllm

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

// TestFlippedPool: bits are flipped in the shared memory of a real LMCache server
// between the cold and the warm pass. Nothing there notices: hits, counters and
// bytes are those of a clean run, which the proof calls identical; the damaged
// one is corrupt, also where every token stays the same.
func TestFlippedPool(t *testing.T) {
	for _, c := range []struct {
		name    string
		mask    byte // of the second highest byte of a float32
		verdict verdict.Verdict
	}{
		{"none", 0, verdict.Identical},
		{"lowest bit of the exponent", 0x80, verdict.Corrupt},
		{"a bit of the mantissa", 0x04, verdict.Corrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell, server := harness.StartCell(t, harness.TestCell{Row: "lmcache", Requests: 2, OutputLen: 64, Real: true})
			pool := server.Facts["lmcache-pool"]
			empty, err := os.ReadFile(pool)
			require.NoError(t, err)
			flipped := beforeWarm(t, server, func() error { return flipStored(pool, empty, c.mask) })
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			require.NoError(t, flipped())
			require.Equal(t, c.verdict, proof.Verdict, "%v", findings)
			require.Equal(t, proof.Result.Warm.Expected.Total.Min, proof.Result.Warm.HitTokens, "every counter says that all is well")
			require.Equal(t, c.verdict == verdict.Corrupt, len(findings) > 0)
			if len(findings) > 0 {
				require.Contains(t, []row.Code{row.OutputDiffers, row.LogprobShift, row.LogprobNull}, findings[0].Code)
				require.Regexp(t, "token [0-9]+", findings[0].Evidence, "with the position")
				t.Log(run.Explain(proof.Result, ""))
			}
		})
	}
}
