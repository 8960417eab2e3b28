package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// noisy is a cell on an engine whose outputs move by themselves.
func noisy(row string, controls *run.Controls, faults ...fault.Fault) harness.TestCell {
	return harness.TestCell{
		Row: row, Requests: 8, Concurrency: 4, OutputLen: 64, Inexact: true, Controls: controls,
		Faults: append([]fault.Fault{fault.NumericNoise}, faults...),
	}
}

// controlled runs the arms on the engine alone, for the content of this test.
func controlled(t *testing.T) (*run.Controls, run.Control) {
	t.Helper()
	controls := &run.Controls{}
	engine, _ := harness.StartCell(t, noisy("engine-cache", controls))
	control, findings, err := engine.Control(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.NotNil(t, control.LocalHit)
	return controls, control
}

// TestControls: on an engine that differs from itself, differences of that kind
// are none of the cache, and a bit flipped under the same noise still is.
func TestControls(t *testing.T) {
	for _, name := range []string{"baseline", "engine-cache", "lmcache", "daser-prefix"} {
		t.Run("backend="+name, func(t *testing.T) {
			controls, control := controlled(t)
			noise := verdict.NoiseOf(*control.Recompute)
			require.Positive(t, noise.MaxShift, "the noise does nothing")
			t.Logf("recompute %+v, local hit %+v", noise, verdict.NoiseOf(*control.LocalHit))
			cell, _ := harness.StartCell(t, noisy(name, controls))
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			requireTied(t, findings)
			require.Contains(t, []verdict.Verdict{verdict.Identical, verdict.NumericTie}, proof.Verdict)
			t.Logf("%s: %d of %d match", proof.Verdict, proof.Result.Comparison.Matches, proof.Result.Comparison.Total)
			for _, p := range proof.Result.Comparison.Pairs {
				require.Positive(t, p.Logprobs.Differing, "without noise nothing is told apart")
			}
			cycle, findings, err := cell.Cycle(t.Context())
			require.NoError(t, err)
			requireTied(t, findings)
			require.NotEqual(t, verdict.Corrupt, cycle.Verdict)
		})
	}
	for _, f := range []fault.Fault{fault.BitFlip, fault.ZeroBlock, fault.OtherRequest} {
		t.Run("fault="+string(f), func(t *testing.T) {
			controls, _ := controlled(t)
			cell, _ := harness.StartCell(t, noisy("lmcache", controls, f))
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, findings)
			require.Contains(t, f.Findings(), string(findings[0].Code), "%v", findings)
			require.Equal(t, verdict.Corrupt, proof.Verdict)
		})
	}
}

// requireTied allows what noise alone can show: that more than half of the
// answers part.
func requireTied(t *testing.T, findings []row.Finding) {
	t.Helper()
	for _, f := range findings {
		require.Equal(t, row.TiedTooOften, f.Code, "%v", findings)
	}
}
