package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestFaults: each fault that can be planted turns a cell red, with a finding
// that names it; those that must not mislead anything leave it green.
func TestFaults(t *testing.T) {
	for _, f := range fault.All() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			spec := harness.TestCell{Row: "lmcache", Faults: []fault.Fault{f}}
			if f == fault.Stall {
				spec.Stall = time.Second
			}
			cell, server := harness.StartCell(t, spec)
			findings := run.Start(t.Context(), server, settings.BlockSize)
			if len(findings) == 0 {
				findings = everything(t, cell)
			}
			if len(f.Findings()) == 0 {
				require.Empty(t, findings)
				return
			}
			requireFinding(t, f, findings)
		})
	}
}

// TestHealthy: the same cells without a fault stay green.
func TestHealthy(t *testing.T) {
	cell, server := harness.StartCell(t, harness.TestCell{Row: "lmcache"})
	require.Empty(t, run.Start(t.Context(), server, settings.BlockSize))
	require.Empty(t, everything(t, cell))
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

// TestDaserFaults: the faults of a DaseR server, each on the row that it can
// mislead. Chunk reuse changes outputs by design, so there it is the check of
// delivered KV that must tell.
func TestDaserFaults(t *testing.T) {
	for _, f := range fault.Daser() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			spec := harness.TestCell{Row: "daser-chunk", Workload: "recomposed", Faults: []fault.Fault{f}}
			switch f {
			case fault.EarlyDrain: // uploads wait for their own commit
				spec.Row, spec.Workload = "daser-prefix", "unique"
			case fault.EvictionAsHit: // something must have been evicted
				spec.L1Share, spec.NoL2 = 0.5, true
			}
			cell, _ := harness.StartCell(t, spec)
			requireFinding(t, f, everything(t, cell))
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
