package bench_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/run"
)

// TestHitIsRight: at every length and in every situation in which a cache is
// likely to be wrong, the hit is as long as its law says and the answer is the
// one that was computed, logprobs too. Each case runs alone, on any row:
//
//	go test -run 'TestHitIsRight/backend=lmcache/length=2B-1' -blocksize=64
func TestHitIsRight(t *testing.T) {
	harness.EachHitCase(t, func(t *testing.T, cell *run.Cell, c fixtures.HitCase) {
		findings, err := cell.HitCase(t.Context(), c)
		require.NoError(t, err)
		require.Empty(t, findings, c.Why)
	})
}

// TestHitIsRightCatches: a store whose hits are off by one fails at the lengths
// at which that can be seen, and at no other; also behind an engine whose own
// cache ends elsewhere.
func TestHitIsRightCatches(t *testing.T) {
	b := settings.BlockSize
	found := func(prompt int) int { return prompt / b * b }
	for f, wrong := range map[fault.Fault]func(prompt int) bool{
		fault.HitMinusOneToken: func(p int) bool { return found(p) > 0 },
		fault.HitMinusOneBlock: func(p int) bool { return found(p) > 0 },
		// The last token is always computed: a hit cannot be longer than P-1.
		fault.HitPlusOneToken:  func(p int) bool { return found(p) > 0 && found(p) < p-1 },
		fault.HitPlusOneBlock:  func(p int) bool { return found(p) > 0 && found(p) < p-1 },
		fault.FullHitSkipsLast: func(p int) bool { return found(p) == p },
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			var want, failed []string
			harness.HitCases(t, "lmcache", []fault.Fault{f}, func(t *testing.T, cell *run.Cell, c fixtures.HitCase) {
				if !strings.HasPrefix(c.Name, "length=") && !strings.HasPrefix(c.Name, "ends=") {
					return
				}
				stored := slices.IndexFunc(c.Waves, func(w fixtures.Wave) bool { return w.Name == "cold" })
				if wrong(len(c.Waves[stored].Requests[0].Prompt)) {
					want = append(want, c.Name)
				}
				findings, err := cell.HitCase(t.Context(), c)
				require.NoError(t, err)
				if len(findings) > 0 {
					failed = append(failed, c.Name)
					require.Contains(t, f.Findings(), string(findings[0].Code), "%v", findings)
				}
			})
			require.NotEmpty(t, want)
			require.Equal(t, slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(failed)))
		})
	}
}
