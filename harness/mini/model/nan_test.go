package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNaNInCachedKVReachesEveryLogit plants one NaN at a time. The first layer
// and the last differ in the way that it takes, and so do keys and values.
func TestNaNInCachedKVReachesEveryLogit(t *testing.T) {
	for _, test := range []struct {
		name  string
		scale float32 // of the healthy keys: at 100 most weights vanish beside the largest
	}{
		{"spread attention", 1},
		{"attention on few tokens", 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newModel(t, Nano())
			const cached, blockSize = 20, 16
			prompt := randomTokens(m, cached+1, 1)
			healthy := newCache(m, blockSize, cached+1)
			healthy.extend(t, prompt[:cached])
			for layer := range m.config.Layers {
				for token := range cached {
					from, to := m.Span(blockSize, layer, Keys, token%blockSize)
					for i := range healthy.blocks[token/blockSize][from:to] {
						healthy.blocks[token/blockSize][from+i] *= test.scale
					}
				}
			}
			for _, logit := range healthy.clone().extend(t, prompt[cached:]) {
				require.False(t, math.IsNaN(float64(logit)), "the cache without the fault")
			}
			for layer := range m.config.Layers {
				for plane := range planes {
					for token := range cached {
						from, to := m.Span(blockSize, layer, plane, token%blockSize)
						for at := from; at < to; at++ {
							k := healthy.clone()
							k.blocks[token/blockSize][at] = float32(math.NaN())
							logits := k.extend(t, prompt[cached:])
							for id, logit := range logits {
								if !math.IsNaN(float64(logit)) {
									require.Failf(t, "NaN is hidden", "logit %d is %v with NaN in layer %d, plane %d, token %d, value %d",
										id, logit, layer, plane, token, at-from)
								}
							}
							require.Zero(t, Greedy(logits))
						}
					}
				}
			}
		})
	}
}

// TestNaNInAKeyReachesAQueryOfZeros: a product skips the zeros of its left
// side and the NaN that they meet.
func TestNaNInAKeyReachesAQueryOfZeros(t *testing.T) {
	m := newModel(t, Nano())
	for _, l := range m.layers {
		for row := range l.qkv.rows {
			clear(l.qkv.data[row*l.qkv.columns:][:m.config.queryDim()])
		}
	}
	prompt := randomTokens(m, 6, 1)
	k := newCache(m, 16, 6)
	k.extend(t, prompt[:5])
	require.False(t, math.IsNaN(float64(k.clone().extend(t, prompt[5:])[0])), "the cache without the fault")
	from, _ := m.Span(16, 1, Keys, 2)
	k.blocks[0][from+3] = float32(math.NaN())
	require.True(t, math.IsNaN(float64(k.extend(t, prompt[5:])[0])))
}

// TestNaNBehindTheLastTokenIsNotRead: blocks are reused, and what an earlier
// sequence left behind the tokens of this one is not its KV. The caches of
// these tests are full of NaN from the start; here the rest of the last block
// is compared with a clean one.
func TestNaNBehindTheLastTokenIsNotRead(t *testing.T) {
	m := newModel(t, Nano())
	for _, length := range []int{1, 15, 16, 17, 33} {
		t.Run(fmt.Sprintf("tokens=%d", length), func(t *testing.T) {
			prompt := randomTokens(m, length, 1)
			dirty, clean := newCache(m, 32, 64), newCache(m, 32, 64)
			for _, block := range clean.blocks {
				clear(block)
			}
			requireSameBits(t, clean.extend(t, prompt), dirty.extend(t, prompt), "logits")
			requireSameBits(t, clean.kv(), dirty.kv(), "KV")
			// Nor is it written.
			for layer := range m.config.Layers {
				for plane := range planes {
					for token := length; token < 64; token++ {
						from, to := m.Span(32, layer, plane, token%32)
						for _, x := range dirty.blocks[token/32][from:to] {
							require.True(t, math.IsNaN(float64(x)), "layer %d, plane %d, token %d", layer, plane, token)
						}
					}
				}
			}
		})
	}
}

func TestNaNOfALaterTokenDoesNotReachEarlierOnes(t *testing.T) {
	m := newModel(t, Nano())
	prompt := randomTokens(m, 40, 1)
	healthy := newCache(m, 16, 40)
	healthy.extend(t, prompt)
	// Another model, whose embedding of the last token is NaN, computes the
	// whole prompt in one pass: same tile, same products.
	broken := newModel(t, Nano())
	last := int(prompt[39])
	require.NotContains(t, prompt[:39], prompt[39])
	for i := range broken.config.Hidden {
		broken.embedding[last*broken.config.Hidden+i] = float32(math.NaN())
	}
	k := newCache(broken, 16, 40)
	for _, logit := range k.extend(t, prompt) {
		require.True(t, math.IsNaN(float64(logit)))
	}
	healthy.length, k.length = 39, 39
	requireSameBits(t, healthy.kv(), k.kv(), "KV of the tokens before it")
}

func TestExp(t *testing.T) {
	for x := float32(-86.9); x < 88; x += 0.00317 {
		want := math.Exp(float64(x))
		require.InEpsilon(t, want, float64(exp(x)), 3.0/(1<<23), "exp(%v)", x)
	}
	require.Equal(t, float32(1), exp(0))
	for _, x := range []float32{-87, -100, -1e30, float32(math.Inf(-1))} {
		require.Equal(t, float32(smallest), exp(x), "exp(%v)", x)
		require.NotZero(t, exp(x))
	}
	for _, x := range []float32{88.1, 1e30, float32(math.Inf(1))} {
		require.True(t, math.IsInf(float64(exp(x)), 1), "exp(%v)", x)
	}
	require.True(t, math.IsNaN(float64(exp(float32(math.NaN())))))
}
