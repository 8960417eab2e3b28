package model

import (
	"errors"
	"fmt"
	"math"
)

// A Config is the shape of a model and the seed of its weights. Two models of
// equal Config compute the same bits.
type Config struct {
	Layers       int     // transformer blocks
	Hidden       int     // width of the residual stream
	Heads        int     // query heads, a multiple of KVHeads
	KVHeads      int     // key and value heads; Heads/KVHeads queries share one
	HeadDim      int     // width of a head, even: rotary positions turn pairs
	Intermediate int     // width of the SwiGLU
	Vocab        int     // token ids lie in [0, Vocab)
	Context      int     // longest sequence in tokens
	RopeTheta    float64 // base of the rotary frequencies
	Seed         uint64  // of the weights
}

// Mini is the size that benchmarks run on: about 0.7 million weights in the
// layers and 1 KiB of KV per token, so that a cold prompt of 1,024 tokens
// costs tenths of a second on one core and a decode step less than one
// millisecond.
func Mini() Config {
	return Config{
		Layers: 2, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 512,
		Vocab: 4096, Context: 4096, RopeTheta: 10000, Seed: 1,
	}
}

// Nano has the same structure at a size for unit tests and the race detector:
// a token costs some twenty microseconds. Vocabulary and context are 1,024.
func Nano() Config {
	return Config{
		Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, Intermediate: 64,
		Vocab: 1024, Context: 1024, RopeTheta: 10000, Seed: 1,
	}
}

// kvDim is the number of float32 values of one token in one plane.
func (c Config) kvDim() int { return c.KVHeads * c.HeadDim }

// queryDim is the width of all query heads together.
func (c Config) queryDim() int { return c.Heads * c.HeadDim }

// maxSize bounds each size of a Config, so that no product of two overflows
// and a typing error is an error and not an exhausted machine.
const maxSize = 1 << 20

func (c Config) validate() error {
	var faults []error
	for _, size := range []struct {
		name  string
		value int
	}{
		{"Layers", c.Layers},
		{"Hidden", c.Hidden},
		{"Heads", c.Heads},
		{"KVHeads", c.KVHeads},
		{"HeadDim", c.HeadDim},
		{"Intermediate", c.Intermediate},
		{"Vocab", c.Vocab},
		{"Context", c.Context},
	} {
		if size.value < 1 || size.value > maxSize {
			faults = append(faults, fmt.Errorf("%s is %d, want 1 to %d", size.name, size.value, maxSize))
		}
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		faults = append(faults, fmt.Errorf("%d Heads over %d KVHeads, want a multiple", c.Heads, c.KVHeads))
	}
	if c.HeadDim%2 != 0 {
		faults = append(faults, fmt.Errorf("HeadDim is %d, want an even number", c.HeadDim))
	}
	if !(c.RopeTheta > 1) || math.IsInf(c.RopeTheta, 1) {
		faults = append(faults, fmt.Errorf("RopeTheta is %v, want a finite number above 1", c.RopeTheta))
	}
	return errors.Join(faults...)
}
