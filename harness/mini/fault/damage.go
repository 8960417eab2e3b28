package fault

import (
	"math"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// damage applies the faults that change bytes to the first tokens tokens of a
// load. It aims at the middle of what was loaded, and within the tokens that
// will be read: damage nobody reads is no fault. What is worn has a bit flipped.
func (i *Injector) damage(tokens int, dst [][]float32, worn bool) {
	if tokens == 0 {
		return
	}
	whole := tokens / i.blockSize
	block, count := max(0, whole-1)/2, i.blockSize
	if whole == 0 {
		count = tokens
	}
	target := dst[block]
	if i.Has(BitFlip) || worn {
		at := i.someValue(target, count)
		target[at] = math.Float32frombits(math.Float32bits(target[at]) ^ 1<<23)
	}
	if i.Has(TokensPermuted) {
		i.reverse(target, count)
	}
	if i.Has(SwappedBlocks) && whole >= 2 {
		for at, v := range target {
			target[at], dst[block+1][at] = dst[block+1][at], v
		}
	}
	if i.Has(ZeroBlock) {
		clear(target)
	}
	if i.Has(NaN) {
		target[i.someValue(target, count)] = float32(math.NaN())
	}
}

// forget leaves one token of what was loaded without KV.
func (i *Injector) forget(token int, dst [][]float32) {
	for layer := range i.model.Config().Layers {
		for _, plane := range []model.Plane{model.Keys, model.Values} {
			from, to := i.model.Span(i.blockSize, layer, plane, token%i.blockSize)
			clear(dst[token/i.blockSize][from:to])
		}
	}
}

// someValue is the index of a value that is not zero: the first one of the
// middle token's values in the middle layer, or of what follows there.
func (i *Injector) someValue(block []float32, count int) int {
	from, _ := i.model.Span(i.blockSize, i.model.Config().Layers/2, model.Values, count/2)
	for at := from; at < len(block); at++ {
		if block[at] != 0 {
			return at
		}
	}
	return from
}

// reverse turns the order of the first count tokens of a block around.
func (i *Injector) reverse(block []float32, count int) {
	for layer := range i.model.Config().Layers {
		for _, plane := range []model.Plane{model.Keys, model.Values} {
			for a, b := 0, count-1; a < b; a, b = a+1, b-1 {
				from, to := i.model.Span(i.blockSize, layer, plane, a)
				other, _ := i.model.Span(i.blockSize, layer, plane, b)
				for at := range to - from {
					block[from+at], block[other+at] = block[other+at], block[from+at]
				}
			}
		}
	}
}
