package model

import "fmt"

// RotateKeys moves the keys of the first tokens tokens of a block, in all
// layers, by delta positions, in place: a block that was computed from
// position p on then stands for the same tokens from position p+delta on. Each
// pair (x, y) = (i, i+HeadDim/2) of a head is turned by φ = delta·f(i), where
// f(i) = RopeTheta^(−2i/HeadDim) (Su et al. 2021, arXiv 2104.09864):
//
//	x' = x·cos φ − y·sin φ
//	y' = x·sin φ + y·cos φ
//
// Rotations about one axis add up, so this is what the model would have
// computed at the new position from the same hidden state, but for rounding:
// sine, cosine, two products and a sum in float32 are off by at most 2^-22 of
// the pair's length. Values have no position and stay; delta 0 changes no bit.
//
// What it does not repair: the hidden state of a token depends on the tokens
// before it. KV that is moved behind other text is the KV of a text that was
// read without that, which is why reuse of chunks is lossy.
//
// A negative delta moves towards the start. It panics where the block is not
// of that size, tokens do not fit it or |delta| is not below the context.
func (m *Model) RotateKeys(blockSize int, block []float32, tokens, delta int) {
	if len(block) != m.BlockLen(blockSize) || tokens < 0 || tokens > blockSize {
		panic(fmt.Sprintf("model: rotating %d tokens of a block of %d values; one of %d tokens has %d",
			tokens, len(block), blockSize, m.BlockLen(blockSize)))
	}
	if delta <= -m.config.Context || delta >= m.config.Context {
		panic(fmt.Sprintf("model: rotating by %d positions; the context has %d", delta, m.config.Context))
	}
	if delta == 0 || tokens == 0 {
		return
	}
	turn := m.rotary.turn
	if delta < 0 {
		turn, delta = m.rotary.turnBack, -delta
	}
	for layer := range m.config.Layers {
		from, _ := m.PlaneSpan(blockSize, layer, Keys)
		turn(block[from:from+tokens*m.config.kvDim()], delta)
	}
}
