package model

// FLOPs is what n tokens from position start need, in floating-point
// operations, a multiplication and an addition counting as two: the matrix
// products of each token, its attention over itself and the tokens before it,
// and the logits of one row. Norms, activations, rotations and the
// exponentials are not counted.
//
// A prompt of P tokens of which h are reused needs FLOPs(h, P−h), however it
// is cut. Forward counts its own work as it does it: with logits wanted for
// one sequence its count equals FLOPs of that sequence; a sequence whose
// logits are not wanted takes FLOPs less LogitFLOPs.
func (m *Model) FLOPs(start, n int) int64 {
	if n < 1 {
		return 0
	}
	c := m.config
	var weights int64 // that a token meets in a layer
	weights += int64(c.Hidden) * int64((c.Heads+c.KVHeads+c.KVHeads)*c.HeadDim)
	weights += int64(c.Heads*c.HeadDim) * int64(c.Hidden)
	weights += 3 * int64(c.Hidden) * int64(c.Intermediate)
	// Token p attends to p+1 tokens, from start+1 to start+n: an arithmetic
	// series. Each pair is one dot product and one weighted sum per head.
	pairs := int64(n) * (int64(start) + 1 + int64(start) + int64(n)) / 2
	perPair := 2 * 2 * int64(c.Heads) * int64(c.HeadDim)
	return int64(c.Layers)*(2*weights*int64(n)+perPair*pairs) + m.LogitFLOPs()
}

// LogitFLOPs is the share of the logits of one row in FLOPs.
func (m *Model) LogitFLOPs() int64 { return 2 * int64(m.config.Hidden) * int64(m.config.Vocab) }
