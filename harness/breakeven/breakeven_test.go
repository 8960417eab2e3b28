package breakeven

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// curve measures two polynomials, in microseconds, at a few lengths.
func curve(recompute, load func(n float64) float64) *Curve {
	var c Curve
	for _, n := range []int{128, 256, 512, 1024} {
		at := func(f func(float64) float64) time.Duration {
			return time.Duration(f(float64(n)) * float64(time.Microsecond))
		}
		for _, late := range []time.Duration{3 * time.Millisecond, 0, time.Second} { // what others add does not count
			c.Add(n, at(recompute)+late, at(load)+late/2, at(recompute)*11/10+late)
		}
	}
	return &c
}

func TestBreakEven(t *testing.T) {
	square := func(n float64) float64 { return 500 + 200*n + 0.05*n*n }
	for _, test := range []struct {
		name            string
		recompute, load func(n float64) float64
		want            int
	}{
		// 500 + 200n + 0.05n² > 5000 + 10n from n = 23.55 on.
		{"in between", square, func(n float64) float64 { return 5000 + 10*n }, 24},
		{"a slower start of the store", square, func(n float64) float64 { return 50000 + 10*n }, 246},
		{"a slower store", square, func(n float64) float64 { return 5000 + 190*n }, 217},
		{"a larger model", func(n float64) float64 { return 10 * square(n) }, func(n float64) float64 { return 50000 + 10*n }, 23},
		{"always", square, func(n float64) float64 { return 100 + n }, 1},
		{"never", square, func(n float64) float64 { return 1000 + 1000*n }, 0},
		{"only when it is short", func(n float64) float64 { return 5000 + n }, func(n float64) float64 { return 100 + 10*n }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := curve(test.recompute, test.load)
			got, err := c.Fit()
			require.NoError(t, err)
			require.InDelta(t, test.want, got.Tokens, 1)
			require.Equal(t, 4096, got.Limit)
			tax, ok := got.ColdTax()
			require.True(t, ok)
			require.InDelta(t, 0.1, tax, 1e-4)
			for _, p := range got.Points {
				require.InEpsilon(t, p.Recompute.Seconds(), got.Recompute.At(float64(p.Tokens)), 1e-3, "the fit goes through exact data")
				require.InEpsilon(t, p.Load.Seconds(), got.Load.At(float64(p.Tokens)), 1e-3)
			}
		})
	}
}

// The transfer alone: 1 KiB a token at 1 GiB/s is a microsecond a token.
func TestPredicted(t *testing.T) {
	got, err := curve(func(n float64) float64 { return 2 * n }, func(n float64) float64 { return 1000 + n }).Fit()
	require.NoError(t, err)
	require.InDelta(t, 1001, got.Tokens, 2)
	require.Equal(t, 1, got.Predicted(1<<10, 1<<30), "it is always faster than computing")
	require.Zero(t, got.Predicted(3<<10, 1<<30), "it never is")
}

// Noise must not make time fall with length.
func TestNoNegativeCost(t *testing.T) {
	var c Curve
	for n, us := range map[int]int{100: 1000, 200: 1990, 400: 3900, 800: 7500} { // bends downwards
		c.Add(n, time.Duration(us)*time.Microsecond, time.Duration(2000-n)*time.Microsecond, 0)
	}
	got, err := c.Fit()
	require.NoError(t, err)
	require.Zero(t, got.Recompute.PerSquare)
	require.Positive(t, got.Recompute.PerToken)
	require.Zero(t, got.Load.PerToken, "loads that get shorter are taken as constant")
	_, ok := got.ColdTax()
	require.False(t, ok)
}

func TestTooLittle(t *testing.T) {
	var c Curve
	_, err := c.Fit()
	require.ErrorContains(t, err, "0 lengths were measured")
	c.Add(10, time.Second, time.Second, 0)
	_, err = c.Fit()
	require.ErrorContains(t, err, "1 lengths")
	c.Add(20, 0, time.Second, 0)
	_, err = c.Fit()
	require.ErrorContains(t, err, "20 tokens took 0s to compute")
}

func TestWords(t *testing.T) {
	require.Equal(t, "a hit pays from 24 tokens", Result{Tokens: 24}.String())
	require.Equal(t, "a hit pays from 24 tokens by the fits (the shortest that was measured, 128, does)", Result{Tokens: 24, Points: []Point{{Tokens: 128}}}.String())
	require.Equal(t, "a hit does not pay up to 4096 tokens", Result{Limit: 4096}.String())
}

func TestSVG(t *testing.T) {
	r, err := curve(func(n float64) float64 { return 500 + 200*n }, func(n float64) float64 { return 5000 + 10*n }).Fit()
	require.NoError(t, err)
	text := SVG(Plot{Title: "lmcache <L1> & more", Result: r, Predicted: &Polynomial{PerToken: 1e-6}, Rate: "host copy, 10 GB/s"})
	for _, want := range []string{"<svg ", "</svg>", "lmcache &lt;L1&gt; &amp; more", "a hit pays from 24 tokens by the fits", "host copy, 10 GB/s", "recompute", "load"} {
		require.Contains(t, text, want)
	}
	require.Equal(t, 8, strings.Count(text, "<circle "), "a point for each measurement")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "Inf")
}
