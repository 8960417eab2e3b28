package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/breakeven"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/row"
)

// BenchmarkBreakEven asks: from what length on does a hit pay, and what does
// storing cost those who miss?
func BenchmarkBreakEven(b *testing.B) {
	harness.EachTier(b, func(b *testing.B, e *harness.BreakEven) {
		for b.Loop() {
			e.Measure(b)
		}
		e.Report(b)
	})
}

// TestBreakEven: a store that is slower pays later, and a model that is larger
// makes it pay earlier.
func TestBreakEven(t *testing.T) {
	fast := breakEvenOf(t, harness.TestCell{Row: "lmcache"})
	slow := breakEvenOf(t, harness.TestCell{Row: "lmcache", Faults: []fault.Fault{fault.SlowLoad}})
	larger := breakEvenOf(t, harness.TestCell{Row: "lmcache", Model: "mini", Faults: []fault.Fault{fault.SlowLoad}})
	t.Logf("%v; slow store: %v; and a larger model: %v", fast, slow, larger)
	require.Greater(t, slow.Load.Fixed, fast.Load.Fixed)
	require.Greater(t, from(slow), from(fast), "slow store")
	require.Less(t, from(larger), from(slow), "larger model")
	require.Greater(t, larger.Recompute.PerToken, slow.Recompute.PerToken)
}

// from is where a hit pays; beyond the limit where it does not.
func from(r breakeven.Result) int {
	if r.Tokens == 0 {
		return r.Limit + 1
	}
	return r.Tokens
}

// breakEvenOf measures a row at three lengths beside a baseline of its model.
func breakEvenOf(t *testing.T, spec harness.TestCell) breakeven.Result {
	t.Helper()
	_, server := harness.StartCell(t, spec)
	_, computing := harness.StartCell(t, harness.TestCell{Row: "baseline", Model: spec.Model})
	curve, findings, err := breakeven.Measure(t.Context(), breakEvenConfig(t, spec, server, computing.Client))
	require.NoError(t, err)
	require.Empty(t, findings)
	result, err := curve.Fit()
	require.NoError(t, err)
	return result
}

func breakEvenConfig(t *testing.T, spec harness.TestCell, server *row.Server, computing row.Client) breakeven.Config {
	t.Helper()
	b := settings.BlockSize
	lengths := breakeven.Lengths(b, 4*b, server.Context)
	if len(lengths) < 3 {
		harness.Missing(t, "-blocksize=%d leaves no room for three lengths in a context of %d.", b, server.Context)
	}
	return breakeven.Config{
		Server: server, Recompute: computing, Lengths: lengths[:3], Repeats: 4, Params: fixtures.Params{
			BlockSize: b, Context: server.Context, Vocab: server.Vocab, Seed: settings.Seed, Nonce: t.Name(),
		},
	}
}

// TestBreakEvenNeedsRealHits: what is not the hit that it should be is a finding
// and no number.
func TestBreakEvenNeedsRealHits(t *testing.T) {
	for f, want := range map[fault.Fault]row.Code{
		fault.LostStore: row.HitBelowOracle, fault.ZeroBlock: row.OutputDiffers, fault.HitMinusOneBlock: row.HitBelowOracle, fault.ErrorEvent: row.RequestFailed,
	} {
		t.Run(string(f), func(t *testing.T) {
			spec := harness.TestCell{Row: "lmcache", Faults: []fault.Fault{f}}
			_, server := harness.StartCell(t, spec)
			config := breakEvenConfig(t, spec, server, nil)
			_, findings, err := breakeven.Measure(t.Context(), config)
			require.NoError(t, err)
			require.Len(t, findings, 1)
			require.Equal(t, want, findings[0].Code, "%v", findings)
		})
	}
}

// TestBreakEvenTier: hits that come from another tier than was asked for are
// none of its.
func TestBreakEvenTier(t *testing.T) {
	spec := harness.TestCell{Row: "lmcache", L1Units: 64}
	_, server := harness.StartCell(t, spec)
	config := breakEvenConfig(t, spec, server, nil)
	config.Tier = row.L1
	_, findings, err := breakeven.Measure(t.Context(), config)
	require.NoError(t, err)
	require.Empty(t, findings)
	config.Tier, config.Sample = row.L2, 1
	_, findings, err = breakeven.Measure(t.Context(), config)
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	require.Equal(t, row.WitnessDisagrees, findings[0].Code)
	require.Contains(t, findings[0].Evidence, "0 came from l2")
}
