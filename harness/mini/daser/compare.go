package daser

import (
	"fmt"
	"math"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// reference is the KV of tokens that are read alone, from position 0.
func (c *Check) reference(tokens []int32) ([][]float32, error) {
	blocks := make([][]float32, (len(tokens)+c.size-1)/c.size)
	for i := range blocks {
		blocks[i] = make([]float32, c.model.BlockLen(c.size))
	}
	_, err := c.model.Forward(c.size, []model.Sequence{{Tokens: tokens, Blocks: blocks}})
	return blocks, err
}

// against finds the first wrong value of each plane among n tokens. Blocks
// that are nil were not asked for.
func (c *Check) against(want [][]float32, moved, n int, got [][]float32) []Mismatch {
	var found []Mismatch
	for layer := range c.model.Config().Layers {
		for _, plane := range []model.Plane{model.Keys, model.Values} {
			for token := range n {
				if got[token/c.size] == nil {
					continue
				}
				from, to := c.model.Span(c.size, layer, plane, token%c.size)
				have, should := got[token/c.size][from:to], want[token/c.size][from:to]
				var m *Mismatch
				if plane == model.Keys && moved != 0 {
					m = c.turned(have, should, moved)
				} else {
					m = sameBits(have, should)
				}
				if m != nil {
					m.Layer, m.Token, m.Plane = layer, token, planeName(plane)
					found = append(found, *m)
					break
				}
			}
		}
	}
	return found
}

func planeName(p model.Plane) string {
	if p == model.Keys {
		return "keys"
	}
	return "values"
}

func sameBits(got, want []float32) *Mismatch {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) {
			return &Mismatch{Index: i, Got: fmt.Sprintf("%g", got[i]), Want: fmt.Sprintf("%g", w)}
		}
	}
	return nil
}

// turned compares the keys of one token with keys from moved positions before.
func (c *Check) turned(got, before []float32, moved int) *Mismatch {
	config := c.model.Config()
	half := config.HeadDim / 2
	for i := range got {
		within := i % config.HeadDim
		pair := within % half
		low := i - within + pair
		key := complex(float64(before[low]), float64(before[low+half]))
		angle := float64(moved) / math.Pow(config.RopeTheta, float64(pair)/float64(half))
		at := key * complex(math.Cos(angle), math.Sin(angle))
		want := real(at)
		if within >= half {
			want = imag(at)
		}
		bound := 0x1p-22 * math.Hypot(real(key), imag(key))
		if !(math.Abs(float64(got[i])-want) <= bound) { // also where it is not a number
			return &Mismatch{Index: i, Got: fmt.Sprintf("%g", got[i]), Want: fmt.Sprintf("%g", want)}
		}
	}
	return nil
}
