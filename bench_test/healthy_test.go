package bench_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/run"
)

// healthyRuns is how many runs TestHealthy makes at least. KVPROOF_HEALTHY asks
// for another number; make healthy, which make ci calls, for a hundred.
const healthyRuns = 8

// TestHealthy: nothing is found where nothing is wrong. A run is a stack of its
// own, the proof and a cycle: 8 requests of 64 tokens, 4 in flight. An alarm
// that nobody can believe is as bad as none.
func TestHealthy(t *testing.T) {
	runs := healthyRuns
	if text, set := os.LookupEnv("KVPROOF_HEALTHY"); set {
		var err error
		runs, err = strconv.Atoi(text)
		require.NoError(t, err, "KVPROOF_HEALTHY=%s: want a number of runs", text)
	}
	cells := []harness.TestCell{
		{Row: "baseline", Workload: "unique"},
		{Row: "baseline", Workload: "shared-prefix"},
		{Row: "lmcache", Workload: "unique"},
		{Row: "lmcache", Workload: "shared-prefix"},
		{Row: "daser-chunk", Workload: "documents"},
		{Row: "daser-chunk", Workload: "recomposed"},
		{Row: "daser-prefix", Workload: "unique"},
		{Row: "daser-prefix", Workload: "shared-prefix"},
	}
	each := (runs + len(cells) - 1) / len(cells)
	for _, spec := range cells {
		spec.Requests, spec.Concurrency, spec.OutputLen = 8, 4, 64
		t.Run("backend="+spec.Row+"/workload="+spec.Workload, func(t *testing.T) {
			t.Parallel()
			compared := 0
			for i := range each {
				t.Run("run="+strconv.Itoa(i+1), func(t *testing.T) { // its end closes the stack
					cell, server := harness.StartCell(t, spec)
					require.Empty(t, run.Start(t.Context(), server, settings.BlockSize))
					proof, findings, err := cell.Proof(t.Context())
					require.NoError(t, err)
					require.Empty(t, findings)
					cycle, findings, err := cell.Cycle(t.Context())
					require.NoError(t, err)
					require.Empty(t, findings)
					for _, result := range []run.Result{proof.Result, cycle} {
						for _, p := range result.Comparison.Pairs {
							compared += p.Compared
						}
					}
				})
			}
			require.Equal(t, each*2*8*64, compared, "tokens: a comparison of nothing finds nothing")
		})
	}
}
