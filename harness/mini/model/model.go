// Package model is the transformer of the miniature engine: small, but every
// number that leaves it is computed. A prefix that is reused makes a pass
// faster because less is multiplied, and KV that is damaged changes the output
// because the output is computed from it.
//
// It is a decoder of the Llama family in float32: token embedding, then per
// layer RMSNorm, grouped-query attention with rotary positions and a SwiGLU,
// then RMSNorm and a head of its own. The weights come from a seed, so there
// is no file to load; the gains of the norms are folded into the matrices that
// follow them. KV lives in paged blocks that the caller owns (see Span for
// their layout).
//
//	m, err := model.New(model.Mini())
//	...
//	const blockSize = 16
//	blocks := make([][]float32, 4) // room for 64 tokens
//	for i := range blocks {
//		blocks[i] = make([]float32, m.BlockLen(blockSize))
//	}
//	logits := make([]float32, m.Config().Vocab)
//	flops, err := m.Forward(blockSize, []model.Sequence{{Tokens: prompt, Blocks: blocks, Logits: logits}})
//	next := model.Greedy(logits)
//	flops, err = m.Forward(blockSize, []model.Sequence{{Tokens: []int32{next}, Start: len(prompt), Blocks: blocks, Logits: logits}})
//
// # Bitwise identity
//
// The KV and the logits of a token depend on the tokens before it and on
// nothing else: not on how the sequence was cut into passes, on the block
// size, on the other sequences of a batch, or on GOMAXPROCS. So on this model
// an exact match is exact, and any difference is a fault. It holds because
// every matrix product is NoTrans·NoTrans, where gonum v0.17 adds the terms of
// an element in the order of k, one rounded multiplication and one rounded
// addition each, whatever the other dimensions are (a transposed right-hand
// side goes through a dot product and does not keep that), and because all the
// rest is computed row by row in a fixed order. The bits may differ between
// processor architectures, where Go may fuse a multiplication and an addition.
package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
)

// A Model is the weights of a Config. It is safe for concurrent use: the
// weights are read only and each pass works in its own scratch.
type Model struct {
	config      Config
	embedding   []float32 // Vocab × Hidden
	layers      []layer
	head        matrix // Hidden × Vocab
	rotary      rotary
	fingerprint string
	scratch     sync.Pool // of *scratch
}

// A layer holds the matrices of one transformer block.
type layer struct {
	qkv    matrix // Hidden × (Heads + 2·KVHeads)·HeadDim: queries, keys, values
	out    matrix // Heads·HeadDim × Hidden
	gateUp matrix // Hidden × 2·Intermediate: gate, up
	down   matrix // Intermediate × Hidden
}

// New builds the model of a config; the error names every size that cannot be.
func New(config Config) (*Model, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("building a model of %+v: %w", config, err)
	}
	m := &Model{config: config, rotary: newRotary(config)}
	m.scratch.New = func() any { return new(scratch) }
	m.draw()
	m.fingerprint = m.digest()
	return m, nil
}

// Config returns what the model was built from.
func (m *Model) Config() Config { return m.config }

// Fingerprint identifies what the model computes: sixteen hexadecimal digits
// of a digest of its shape and of every weight. KV that was computed under one
// fingerprint is wrong under another.
func (m *Model) Fingerprint() string { return m.fingerprint }

func (m *Model) digest() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%+v", m.config)
	var buffer []byte
	write := func(weights []float32) {
		buffer = buffer[:0]
		for _, w := range weights {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(w))
		}
		hash.Write(buffer)
	}
	write(m.embedding)
	for _, l := range m.layers {
		for _, w := range []matrix{l.qkv, l.out, l.gateUp, l.down} {
			write(w.data)
		}
	}
	write(m.head.data)
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
