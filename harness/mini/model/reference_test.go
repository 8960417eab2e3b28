package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reference computes a whole prompt in float64, one token and one number at
// a time: no paging, no reuse, no products of matrices. It shares nothing with
// the model but the weights.
type reference struct {
	m            *Model
	keys, values [][][]float64 // [layer][token][kvDim], keys turned
}

func (r *reference) logits(prompt []int32) []float64 {
	c := r.m.config
	r.keys, r.values = make([][][]float64, c.Layers), make([][][]float64, c.Layers)
	var x []float64
	for position, token := range prompt {
		x = make([]float64, c.Hidden)
		for i := range x {
			x[i] = float64(r.m.embedding[int(token)*c.Hidden+i])
		}
		for layer, w := range r.m.layers {
			for i, y := range r.attention(layer, position, referenceNorm(x)) {
				x[i] += y
			}
			gateUp := referenceProduct(referenceNorm(x), w.gateUp)
			hidden := make([]float64, c.Intermediate)
			for i := range hidden {
				g := gateUp[i]
				hidden[i] = g / (1 + math.Exp(-g)) * gateUp[c.Intermediate+i]
			}
			for i, y := range referenceProduct(hidden, w.down) {
				x[i] += y
			}
		}
	}
	return referenceProduct(referenceNorm(x), r.m.head)
}

func (r *reference) attention(layer, position int, x []float64) []float64 {
	c, w := r.m.config, r.m.layers[layer]
	qkv := referenceProduct(x, w.qkv)
	keysAt, valuesAt := c.Heads*c.HeadDim, (c.Heads+c.KVHeads)*c.HeadDim
	for head := range c.Heads + c.KVHeads {
		vector := qkv[head*c.HeadDim : (head+1)*c.HeadDim]
		for i := range c.HeadDim / 2 {
			angle := float64(position) / math.Pow(c.RopeTheta, float64(2*i)/float64(c.HeadDim))
			turned := complex(vector[i], vector[i+c.HeadDim/2]) * complex(math.Cos(angle), math.Sin(angle))
			vector[i], vector[i+c.HeadDim/2] = real(turned), imag(turned)
		}
	}
	r.keys[layer] = append(r.keys[layer], qkv[keysAt:valuesAt])
	r.values[layer] = append(r.values[layer], qkv[valuesAt:])

	mixed := make([]float64, c.Heads*c.HeadDim)
	for head := range c.Heads {
		kv := head * c.KVHeads / c.Heads * c.HeadDim
		weights, sum := make([]float64, position+1), 0.0
		for token := range weights {
			dot := 0.0
			for i := range c.HeadDim {
				dot += qkv[head*c.HeadDim+i] * r.keys[layer][token][kv+i]
			}
			weights[token] = math.Exp(dot / math.Sqrt(float64(c.HeadDim)))
			sum += weights[token]
		}
		for token, weight := range weights {
			for i := range c.HeadDim {
				mixed[head*c.HeadDim+i] += weight / sum * r.values[layer][token][kv+i]
			}
		}
	}
	return referenceProduct(mixed, w.out)
}

func referenceNorm(x []float64) []float64 {
	square := 0.0
	for _, v := range x {
		square += v * v
	}
	normed := make([]float64, len(x))
	for i, v := range x {
		normed[i] = v / math.Sqrt(square/float64(len(x))+1e-6)
	}
	return normed
}

func referenceProduct(x []float64, w matrix) []float64 {
	y := make([]float64, w.columns)
	for row, v := range x {
		for column := range y {
			y[column] += v * float64(w.data[row*w.columns+column])
		}
	}
	return y
}

// TestForwardAgreesWithReference allows what float32 rounding can make of
// logits with a standard deviation of 2 and of KV with one of about 1: a few
// hundred units in the last place. A missing term is a thousand times larger.
func TestForwardAgreesWithReference(t *testing.T) {
	oneGoroutine(t)
	const tolerance = 1e-4
	for _, test := range []struct {
		config    Config
		prompt    int
		blockSize int
	}{
		{Nano(), 1, 16},
		{Nano(), 37, 16},
		{Nano(), 300, 128},
		{Mini(), 90, 32},
		{Config{Layers: 3, Hidden: 20, Heads: 6, KVHeads: 2, HeadDim: 6, Intermediate: 11, Vocab: 77, Context: 60, RopeTheta: 500, Seed: 9}, 50, 7},
		{Config{Layers: 1, Hidden: 16, Heads: 3, KVHeads: 3, HeadDim: 4, Intermediate: 8, Vocab: 40, Context: 60, RopeTheta: 50, Seed: 3}, 50, 1},
	} {
		t.Run(fmt.Sprintf("hidden=%d/prompt=%d/block=%d", test.config.Hidden, test.prompt, test.blockSize), func(t *testing.T) {
			m := newModel(t, test.config)
			prompt := randomTokens(m, test.prompt, 5)
			k := newCache(m, test.blockSize, test.prompt)
			got := k.extend(t, prompt)
			r := reference{m: m}
			want := r.logits(prompt)

			worst := 0.0
			for i := range want {
				worst = max(worst, math.Abs(float64(got[i])-want[i]))
			}
			require.LessOrEqual(t, worst, tolerance, "logits")
			worstKV, at := 0.0, 0
			kv := k.kv()
			for layer := range test.config.Layers {
				for _, plane := range [][][]float64{r.keys[layer], r.values[layer]} {
					for _, token := range plane {
						for _, x := range token {
							worstKV = max(worstKV, math.Abs(float64(kv[at])-x))
							at++
						}
					}
				}
			}
			require.Equal(t, len(kv), at)
			require.LessOrEqual(t, worstKV, tolerance, "KV")
			t.Logf("largest difference: logits %.1e, KV %.1e", worst, worstKV)
		})
	}
}
