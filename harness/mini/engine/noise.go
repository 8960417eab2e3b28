package engine

import (
	"math/rand/v2"
	"sync"
)

// A noise makes an engine whose outputs depend on more than its inputs, as
// those are whose arithmetic is ordered by what else is in the batch: decode
// attention of vLLM on more than one thread (observed on 0.32.0), most kernels
// on a GPU. The first token comes of the prompt alone and is left as it is.
type noise struct {
	scale float32

	mu     sync.Mutex
	random *rand.Rand
}

func newNoise(scale float64) *noise {
	if scale == 0 {
		return nil
	}
	return &noise{scale: float32(scale), random: rand.New(rand.NewPCG(1, 2))}
}

// disturb moves every logit by up to the scale.
func (n *noise) disturb(logits []float32) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range logits {
		logits[i] += n.scale * (2*n.random.Float32() - 1)
	}
}
