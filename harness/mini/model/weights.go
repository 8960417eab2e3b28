package model

import (
	"math"
	"math/rand/v2"
)

// The spread of the weights. A matrix of fan-in k and gain g has weights of
// standard deviation g/√k, so that an input of unit variance, which RMSNorm
// makes, gives an output of standard deviation g. The gains are chosen so that
// the output depends on the whole context and is neither uniform nor frozen;
// the tests in sensitivity_test.go measure that.
const (
	// Attention scores have a standard deviation of about queryGain·keyGain.
	// Sharper attention would leave most tokens of a long context out of
	// sight; broader attention sees hardly more than their mean.
	queryGain = 1.2
	keyGain   = 1.0
	valueGain = 1.0
	// The mean over n values of unit variance has a standard deviation of
	// 1/√n: lifted, so that the context of a thousand tokens still outweighs
	// the embedding of the last one.
	outGain = 16.0
	// At these gains the SwiGLU is close to a product of its two inputs, which
	// doubles a small relative change, and outweighs what it is added to. So
	// outputs do not run into loops although attention is broad.
	gateGain = 3.0
	upGain   = 3.0
	downGain = 4.0
	// The standard deviation of the logits: at 2 the entropy is some six of
	// the eight nats that 4,096 ids can have, and the median gap between the
	// best two about 0.4.
	headGain = 2.0
)

// draw fills the weights from the seed. The distribution is uniform and the
// arithmetic exact, so a seed gives the same weights on every machine.
func (m *Model) draw() {
	c := m.config
	source := rand.NewPCG(c.Seed, 0x6b7670726f6f66) // "kvproof": a stream of our own
	fill := func(into []float32, deviation float64) {
		// Uniform in ±√3·deviation, from the upper 24 bits: as many as a
		// float32 holds.
		scale := float32(deviation * math.Sqrt(3) / (1 << 23))
		for i := range into {
			into[i] = float32(int32(source.Uint64()>>40)-1<<23) * scale
		}
	}
	fillColumns := func(w matrix, from, to int, gain float64) {
		for row := range w.rows {
			fill(w.data[row*w.columns+from:row*w.columns+to], gain/math.Sqrt(float64(w.rows)))
		}
	}

	m.embedding = make([]float32, c.Vocab*c.Hidden)
	fill(m.embedding, 1)
	m.layers = make([]layer, c.Layers)
	q, kv := c.queryDim(), c.kvDim()
	for i := range m.layers {
		l := layer{
			qkv:    newMatrix(c.Hidden, q+2*kv),
			out:    newMatrix(q, c.Hidden),
			gateUp: newMatrix(c.Hidden, 2*c.Intermediate),
			down:   newMatrix(c.Intermediate, c.Hidden),
		}
		fillColumns(l.qkv, 0, q, queryGain)
		fillColumns(l.qkv, q, q+kv, keyGain)
		fillColumns(l.qkv, q+kv, q+2*kv, valueGain)
		fillColumns(l.out, 0, c.Hidden, outGain)
		fillColumns(l.gateUp, 0, c.Intermediate, gateGain)
		fillColumns(l.gateUp, c.Intermediate, 2*c.Intermediate, upGain)
		fillColumns(l.down, 0, c.Hidden, downGain)
		m.layers[i] = l
	}
	m.head = newMatrix(c.Hidden, c.Vocab)
	fillColumns(m.head, 0, c.Vocab, headGain)
}
