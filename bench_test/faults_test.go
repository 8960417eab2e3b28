package bench_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestFaults: each fault that can be planted turns a cell red, and the first
// thing that is found names it; those that must not mislead anything leave it
// green.
func TestFaults(t *testing.T) {
	for _, f := range fault.All() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			spec := harness.TestCell{Row: "lmcache", Faults: []fault.Fault{f}}
			look := everything
			switch f {
			case fault.Stall:
				spec.Stall = time.Second
			case fault.FullHitSkipsLast:
				spec.InputLen = 2 * settings.BlockSize
			case fault.NumericNoise:
				spec.Inexact, spec.Requests, spec.OutputLen = true, 8, 64
			case fault.SecondHit:
				spec.InputLen, look = 5*settings.BlockSize+1, onlyTheThirdTime
			case fault.StaleWeights:
				spec.InputLen, look = 5*settings.BlockSize+1, hitCase("weights=changed")
			}
			cell, server := harness.StartCell(t, spec)
			findings := run.Start(t.Context(), server, settings.BlockSize)
			if len(findings) == 0 {
				findings = look(t, cell)
			}
			t.Logf("%v", findings)
			switch {
			case f == fault.NumericNoise:
				requireTied(t, findings)
			case len(f.Findings()) == 0:
				require.Empty(t, findings)
			default:
				requireFinding(t, f, findings)
			}
		})
	}
}

// hitCase looks at one case of the boundary matrix.
func hitCase(name string) func(*testing.T, *run.Cell) []row.Finding {
	return func(t *testing.T, cell *run.Cell) []row.Finding {
		t.Helper()
		cases, err := fixtures.HitCases(cell.Params(), settings.BlockSize)
		require.NoError(t, err)
		i := slices.Index(fixtures.HitCaseNames(cases), name)
		require.GreaterOrEqual(t, i, 0, "no case %s", name)
		findings, err := cell.HitCase(t.Context(), cases[i])
		require.NoError(t, err)
		return findings
	}
}

// onlyTheThirdTime: two passes see nothing of a hit that leaves damage behind;
// the same prompt asked three times does, in the third.
func onlyTheThirdTime(t *testing.T, cell *run.Cell) []row.Finding {
	t.Helper()
	require.Empty(t, everything(t, cell))
	findings := hitCase("length=2B")(t, cell)
	for _, f := range findings {
		require.Equal(t, "again", f.Phase, "%v", findings)
	}
	return findings
}

// everything is the proof and one timed cycle, as a benchmark runs them.
func everything(t *testing.T, cell *run.Cell) []row.Finding {
	t.Helper()
	_, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	if len(findings) > 0 {
		return findings
	}
	_, findings, err = cell.Cycle(t.Context())
	require.NoError(t, err)
	return findings
}

// TestDaserFaults: the faults of a DaseR server, and those of any store, each on
// the row that it can mislead. Chunk reuse changes outputs by design, so there
// it is the check of delivered KV that must tell.
func TestDaserFaults(t *testing.T) {
	chunk := harness.TestCell{Row: "daser-chunk", Workload: "recomposed"}
	prefix := harness.TestCell{Row: "daser-prefix", Workload: "unique"}
	evicting := chunk
	evicting.L1Share, evicting.NoL2 = 0.5, true
	tests := map[fault.Fault]harness.TestCell{
		fault.PartialChunk:       chunk,
		fault.OtherDocument:      chunk,
		fault.EarlyAck:           chunk,
		fault.EvictionAsHit:      evicting,
		fault.ReorderedDocuments: chunk,
		fault.EarlyDrain:         prefix, // uploads wait for their own commit
		fault.LostStore:          prefix,
		fault.BitFlip:            prefix,
	}
	for _, f := range fault.Daser() {
		require.Contains(t, tests, f)
	}
	for f, spec := range tests {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			spec.Faults = []fault.Fault{f}
			cell, _ := harness.StartCell(t, spec)
			requireFinding(t, f, everything(t, cell))
		})
	}
}

// TestDamagedDocuments: chunk reuse has no outputs to be held to, yet damage to
// a stored document does not pass: each kind is seen in what was delivered.
func TestDamagedDocuments(t *testing.T) {
	for _, f := range []fault.Fault{fault.BitFlip, fault.SwappedBlocks, fault.ZeroBlock, fault.TokensPermuted, fault.NaN} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			cell, _ := harness.StartCell(t, harness.TestCell{Row: "daser-chunk", Workload: "documents", Faults: []fault.Fault{f}})
			findings := everything(t, cell)
			require.NotEmpty(t, findings)
			require.Equal(t, row.KVDiffers, findings[0].Code, "%v", findings)
		})
	}
}

// requireFinding checks that a fault was found under a name of its own.
func requireFinding(t *testing.T, f fault.Fault, findings []row.Finding) {
	t.Helper()
	require.NotEmpty(t, findings, "%s: want one of %v", f.About(), f.Findings())
	require.Contains(t, f.Findings(), string(findings[0].Code), "%v", findings)
	for _, found := range findings {
		require.NotEmpty(t, found.Evidence)
		require.NotEmpty(t, found.Phase)
	}
}
