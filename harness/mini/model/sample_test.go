package model

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func TestGreedy(t *testing.T) {
	for _, test := range []struct {
		name   string
		logits []float32
		want   int32
	}{
		{"one", []float32{-3}, 0},
		{"highest", []float32{-3, 2, 1}, 1},
		{"last", []float32{-3, -2, -1}, 2},
		{"lowest id of equals", []float32{0, 5, 5, 5}, 1},
		{"equal zeros of either sign", []float32{-1, float32(math.Copysign(0, -1)), 0}, 1},
		{"infinity", []float32{1, inf, 2}, 1},
		{"all minus infinity", []float32{-inf, -inf}, 0},
		{"all NaN", []float32{nan, nan, nan}, 0},
		{"NaN above infinity", []float32{1, inf, nan, 2}, 2},
		{"first NaN", []float32{1, nan, 3, nan}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, Greedy(test.logits))
			require.Equal(t, test.want, NewSampler(1, 0).Sample(test.logits), "at temperature 0")
		})
	}
}

func TestLogprobs(t *testing.T) {
	// Probabilities 1/10, 2/10, 3/10 and 4/10, shifted by a constant.
	var logits []float32
	for _, p := range []float64{3, 1, 4, 2} {
		logits = append(logits, float32(math.Log(p)+7))
	}
	for _, test := range []struct {
		name  string
		token int32
		top   int
		want  float64
		ids   []int32
		tops  []float64
	}{
		{"none", 0, 0, 0.3, []int32{}, nil},
		{"negative", 0, -1, 0.3, []int32{}, nil},
		{"one", 1, 1, 0.1, []int32{2}, []float64{0.4}},
		{"three", 2, 3, 0.4, []int32{2, 0, 3}, []float64{0.4, 0.3, 0.2}},
		{"all", 3, 4, 0.2, []int32{2, 0, 3, 1}, []float64{0.4, 0.3, 0.2, 0.1}},
		{"more than there are", 3, 9, 0.2, []int32{2, 0, 3, 1}, []float64{0.4, 0.3, 0.2, 0.1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			logprob, ids, tops := Logprobs(logits, test.token, test.top)
			require.InDelta(t, math.Log(test.want), logprob, 1e-6)
			require.Equal(t, test.ids, ids)
			require.Len(t, tops, len(test.tops))
			for i := range tops {
				require.InDelta(t, math.Log(test.tops[i]), tops[i], 1e-6)
			}
		})
	}
}

func TestLogprobsOfEqualsAreInOrderOfIDs(t *testing.T) {
	_, ids, _ := Logprobs([]float32{1, 2, 2, 1, 2, 1}, 0, 5)
	require.Equal(t, []int32{1, 2, 4, 0, 3}, ids)
}

func TestLogprobsOfLargeLogitsDoNotOverflow(t *testing.T) {
	logprob, _, tops := Logprobs([]float32{3e38, 3e38}, 1, 2)
	require.InDelta(t, math.Log(0.5), logprob, 1e-12)
	require.InDelta(t, math.Log(0.5), tops[0], 1e-12)
	logprob, _, _ = Logprobs([]float32{-inf, 0}, 0, 0)
	require.True(t, math.IsInf(logprob, -1))
}

func TestNaNStaysNaNInLogprobs(t *testing.T) {
	for name, logits := range map[string][]float32{
		"all":   {nan, nan, nan},
		"first": {nan, 1, 2},
		"last":  {1, 2, nan},
	} {
		t.Run(name, func(t *testing.T) {
			for token := range int32(3) {
				logprob, ids, tops := Logprobs(logits, token, 2)
				require.True(t, math.IsNaN(logprob))
				require.Len(t, ids, 2)
				require.True(t, math.IsNaN(tops[0]) && math.IsNaN(tops[1]))
			}
		})
	}
}

func TestSamplerDrawsFromTheDistribution(t *testing.T) {
	logits := []float32{float32(math.Log(1)), float32(math.Log(2)), -inf, float32(math.Log(7))}
	for _, test := range []struct {
		name        string
		temperature float64
		want        []float64
	}{
		{"temperature 1", 1, []float64{0.1, 0.2, 0, 0.7}},
		{"temperature 1/2 squares", 0.5, []float64{1. / 54, 4. / 54, 0, 49. / 54}},
		{"high temperature flattens", 1e9, []float64{1. / 3, 1. / 3, 0, 1. / 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const draws = 20000
			sampler := NewSampler(11, test.temperature)
			counts := make([]float64, len(logits))
			for range draws {
				counts[sampler.Sample(logits)]++
			}
			for id, p := range test.want {
				// Five standard deviations of a binomial share.
				require.InDelta(t, p, counts[id]/draws, 5*math.Sqrt(p*(1-p)/draws)+1e-12, "id %d", id)
			}
		})
	}
}

func TestSamplerIsDecidedByItsSeed(t *testing.T) {
	logits := make([]float32, 100)
	draw := func(s *Sampler, n int) (ids []int32) {
		for range n {
			ids = append(ids, s.Sample(logits))
		}
		return ids
	}
	require.Equal(t, draw(NewSampler(5, 1), 50), draw(NewSampler(5, 1), 50))
	require.NotEqual(t, draw(NewSampler(5, 1), 50), draw(NewSampler(6, 1), 50))
	// NaN uses up its draw.
	a, b := NewSampler(5, 1), NewSampler(5, 1)
	a.Sample(logits)
	require.Equal(t, int32(1), b.Sample([]float32{0, nan}))
	require.Equal(t, draw(a, 20), draw(b, 20))
}

func TestSamplerTakesAnInfiniteLogit(t *testing.T) {
	require.Equal(t, int32(1), NewSampler(1, 1).Sample([]float32{0, inf, 5}))
}

func TestSamplerWithoutATemperatureIsGreedy(t *testing.T) {
	for _, temperature := range []float64{0, -1, math.NaN()} {
		require.Equal(t, int32(1), NewSampler(1, temperature).Sample([]float32{0, 0.001, 0}), "temperature %v", temperature)
	}
}
