package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpansTileABlock(t *testing.T) {
	oneGoroutine(t)
	for _, config := range []Config{Nano(), Mini()} {
		for _, blockSize := range []int{1, 7, 16, 128} {
			t.Run(fmt.Sprintf("hidden=%d/block=%d", config.Hidden, blockSize), func(t *testing.T) {
				m := newModel(t, config)
				end := 0
				for layer := range config.Layers {
					for _, plane := range []Plane{Keys, Values} {
						from, to := m.PlaneSpan(blockSize, layer, plane)
						require.Equal(t, end, from)
						for token := range blockSize {
							tokenFrom, tokenTo := m.Span(blockSize, layer, plane, token)
							require.Equal(t, end, tokenFrom)
							require.Equal(t, config.KVHeads*config.HeadDim, tokenTo-tokenFrom)
							end = tokenTo
						}
						require.Equal(t, end, to)
					}
				}
				require.Equal(t, end, m.BlockLen(blockSize))
				require.Equal(t, 4*end, m.TokenBytes()*blockSize)
			})
		}
	}
}

func TestSpanRefusesWhatIsOutsideABlock(t *testing.T) {
	m := newModel(t, Nano())
	for _, test := range []struct {
		name                    string
		blockSize, layer, token int
		plane                   Plane
	}{
		{"block size", 0, 0, 0, Keys},
		{"layer", 16, m.config.Layers, 0, Keys},
		{"negative layer", 16, -1, 0, Keys},
		{"plane", 16, 0, 0, Values + 1},
		{"negative plane", 16, 0, 0, -1},
		{"token", 16, 0, 16, Keys},
		{"negative token", 16, 0, -1, Keys},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Panics(t, func() { m.Span(test.blockSize, test.layer, test.plane, test.token) })
		})
	}
}

// TestKeysCanBeMoved turns the keys of the first layer, which depend on
// nothing but token and position, by the formula of Span, and compares them
// with keys computed at the new position.
func TestKeysCanBeMoved(t *testing.T) {
	m := newModel(t, Nano())
	c := m.config
	const length, distance, blockSize = 20, 300, 16
	tokens := randomTokens(m, length, 1)
	here, there := newCache(m, blockSize, length), newCache(m, blockSize, distance+length)
	here.extend(t, tokens)
	there.extend(t, slices.Concat(randomTokens(m, distance, 2), tokens))
	moved := 0.0
	for token := range length {
		from, to := m.Span(blockSize, 0, Keys, token%blockSize)
		key := here.blocks[token/blockSize][from:to]
		position := distance + token
		from, to = m.Span(blockSize, 0, Keys, position%blockSize)
		want := there.blocks[position/blockSize][from:to]
		for head := range c.KVHeads {
			for i := range c.HeadDim / 2 {
				low, high := head*c.HeadDim+i, head*c.HeadDim+i+c.HeadDim/2
				sin, cos := math.Sincos(distance * math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim)))
				x, y := float64(key[low]), float64(key[high])
				require.InDelta(t, want[low], x*cos-y*sin, 1e-5)
				require.InDelta(t, want[high], x*sin+y*cos, 1e-5)
				moved = max(moved, math.Abs(x-float64(want[low])))
			}
		}
		from, to = m.Span(blockSize, 0, Values, token%blockSize)
		values := here.blocks[token/blockSize][from:to]
		from, to = m.Span(blockSize, 0, Values, position%blockSize)
		requireSameBits(t, values, there.blocks[position/blockSize][from:to], "values of token %d", token)
	}
	require.Greater(t, moved, 0.1, "the keys of the two positions differ")
}
