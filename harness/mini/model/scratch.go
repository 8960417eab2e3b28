package model

// A scratch is the working memory of one pass. Rows are tokens of the batch
// unless said otherwise. Nothing in it survives a pass.
type scratch struct {
	hidden   []float32 // the residual stream: rows × Hidden
	normed   []float32 // rows × Hidden
	qkv      []float32 // rows × (Heads + 2·KVHeads)·HeadDim
	attended []float32 // rows × Heads·HeadDim
	gateUp   []float32 // rows × 2·Intermediate
	gated    []float32 // rows × Intermediate

	keys    []float32 // of one sequence and layer: kvDim × tokens, padded
	values  []float32 // of one sequence and layer: tokens × kvDim
	queries []float32 // of one tile and key head: rows × HeadDim
	scores  []float32 // of one tile and key head: rows × tokens
	sums    []float32 // of the weights of each row of scores
	mixed   []float32 // the values weighed by scores: rows × HeadDim

	last   []float32 // rows whose logits are wanted × Hidden
	logits []float32 // the same rows × Vocab
}

// fit sizes what depends on the number of rows alone.
func (s *scratch) fit(c Config, rows int) {
	s.hidden = fit(s.hidden, rows*c.Hidden)
	s.normed = fit(s.normed, rows*c.Hidden)
	s.qkv = fit(s.qkv, rows*(c.queryDim()+2*c.kvDim()))
	s.attended = fit(s.attended, rows*c.queryDim())
	s.gateUp = fit(s.gateUp, rows*2*c.Intermediate)
	s.gated = fit(s.gated, rows*c.Intermediate)
}

// fit returns a slice of n values, in the memory of values if that is large
// enough. Its contents are unspecified.
func fit(values []float32, n int) []float32 {
	if cap(values) < n {
		return make([]float32, n)
	}
	return values[:n]
}
