package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRotateKeysAgainstTheNewPosition compares the first layer, whose keys
// depend on nothing but token and position, with keys computed there.
func TestRotateKeysAgainstTheNewPosition(t *testing.T) {
	m := newModel(t, Nano())
	const length, blockSize = 20, 16
	for _, distance := range []int{1, 16, 300, 900} {
		t.Run(fmt.Sprintf("delta=%d", distance), func(t *testing.T) {
			tokens := randomTokens(m, length, 1)
			here, there := newCache(m, blockSize, length), newCache(m, blockSize, distance+length)
			here.extend(t, tokens)
			there.extend(t, slices.Concat(randomTokens(m, distance, 2), tokens))
			for _, block := range here.blocks {
				m.RotateKeys(blockSize, block, blockSize, distance)
			}
			for token := range length {
				from, to := m.Span(blockSize, 0, Keys, token%blockSize)
				keys := here.blocks[token/blockSize][from:to]
				position := distance + token
				from, to = m.Span(blockSize, 0, Keys, position%blockSize)
				for i, want := range there.blocks[position/blockSize][from:to] {
					require.InDelta(t, want, keys[i], 1e-5, "token %d, value %d", token, i)
				}
			}
		})
	}
}

// TestRotateKeysAgainstFloat64 holds every layer against the formula.
func TestRotateKeysAgainstFloat64(t *testing.T) {
	for _, config := range []Config{Nano(), Mini()} {
		m := newModel(t, config)
		const blockSize, tokens = 8, 5
		for _, delta := range []int{1, 16, config.Context - 1, -1, -300} {
			t.Run(fmt.Sprintf("hidden=%d/delta=%d", config.Hidden, delta), func(t *testing.T) {
				before := computedBlock(t, m, blockSize)
				after := slices.Clone(before)
				m.RotateKeys(blockSize, after, tokens, delta)
				moved := 0.0
				for layer := range config.Layers {
					for token := range blockSize {
						from, to := m.Span(blockSize, layer, Values, token)
						requireSameBits(t, before[from:to], after[from:to], "values of token %d", token)
						from, to = m.Span(blockSize, layer, Keys, token)
						if token >= tokens {
							requireSameBits(t, before[from:to], after[from:to], "keys of token %d, which was not to move", token)
							continue
						}
						moved = max(moved, requireTurned(t, config, before[from:to], after[from:to], delta))
					}
				}
				require.Greater(t, moved, 0.1, "the keys of the two positions differ")
			})
		}
	}
}

// requireTurned checks the keys of one token and returns how far they moved.
func requireTurned(t *testing.T, c Config, before, after []float32, delta int) (moved float64) {
	t.Helper()
	for head := range c.KVHeads {
		for i := range c.HeadDim / 2 {
			low, high := head*c.HeadDim+i, head*c.HeadDim+i+c.HeadDim/2
			x, y := float64(before[low]), float64(before[high])
			sin, cos := math.Sincos(float64(delta) * math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim)))
			bound := 0x1p-22 * math.Hypot(x, y)
			require.InDelta(t, x*cos-y*sin, after[low], bound)
			require.InDelta(t, x*sin+y*cos, after[high], bound)
			moved = max(moved, math.Abs(x-float64(after[low])))
		}
	}
	return moved
}

// computedBlock is a block of KV as the model computes it.
func computedBlock(t *testing.T, m *Model, blockSize int) []float32 {
	t.Helper()
	c := newCache(m, blockSize, blockSize)
	c.extend(t, randomTokens(m, blockSize, 3))
	return c.blocks[0]
}

func TestRotateKeysByNothingChangesNoBit(t *testing.T) {
	m := newModel(t, Nano())
	block := computedBlock(t, m, 8)
	block[0], block[1] = float32(math.Copysign(0, -1)), float32(math.Inf(1))
	for _, c := range []struct{ tokens, delta int }{{8, 0}, {0, 7}} {
		got := slices.Clone(block)
		m.RotateKeys(8, got, c.tokens, c.delta)
		requireSameBits(t, block, got, "tokens %d, delta %d", c.tokens, c.delta)
	}
}

func TestRotateKeysBackAndForth(t *testing.T) {
	m := newModel(t, Nano())
	block := computedBlock(t, m, 8)
	got := slices.Clone(block)
	m.RotateKeys(8, got, 8, 40)
	m.RotateKeys(8, got, 8, 60)
	m.RotateKeys(8, got, 8, -100)
	for i, want := range block {
		require.InDelta(t, want, got[i], 1e-5)
	}
}

func TestRotateKeysRefuses(t *testing.T) {
	m := newModel(t, Nano())
	block := make([]float32, m.BlockLen(8))
	for name, rotate := range map[string]func(){
		"a block of another size": func() { m.RotateKeys(16, block, 8, 1) },
		"too many tokens":         func() { m.RotateKeys(8, block, 9, 1) },
		"fewer than none":         func() { m.RotateKeys(8, block, -1, 1) },
		"beyond the context":      func() { m.RotateKeys(8, block, 8, 1024) },
		"before the start":        func() { m.RotateKeys(8, block, 8, -1024) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, rotate) })
	}
}
