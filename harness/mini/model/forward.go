package model

import (
	"errors"
	"fmt"
)

// A Sequence is a run of new tokens in a batch, with the KV of the tokens
// before them.
type Sequence struct {
	// Tokens are the new tokens, at positions Start, Start+1, …; at least one.
	Tokens []int32
	// Start is how many tokens precede them, whose KV is in Blocks already.
	Start int
	// Blocks is the paged KV, each block BlockLen values long: Blocks[i] is
	// that of positions i·B to (i+1)·B−1. They cover Start+len(Tokens)
	// tokens; what lies behind those is neither read nor written. Forward
	// writes the new tokens' KV. Sequences may share blocks that none of
	// them writes.
	Blocks [][]float32
	// Logits, Vocab values long, receives the logits of the last token. Nil
	// where they are not wanted.
	Logits []float32
}

// end is the number of tokens whose KV exists after the pass.
func (s Sequence) end() int { return s.Start + len(s.Tokens) }

// Forward computes the KV of the new tokens of each sequence and the logits of
// the last one, in one pass over the weights. It returns the floating-point
// operations that the matrix products and the attention took, a multiplication
// and an addition counting as two; FLOPs says what that should be. The error
// names what is wrong with the batch; nothing has been written then.
func (m *Model) Forward(blockSize int, batch []Sequence) (flops int64, err error) {
	if blockSize < 1 {
		return 0, fmt.Errorf("passing a batch through the model: block size is %d, want at least 1", blockSize)
	}
	tokens := 0
	for i, s := range batch {
		if err := m.check(blockSize, s); err != nil {
			return 0, fmt.Errorf("passing a batch through the model: sequence %d of %d: %w", i, len(batch), err)
		}
		tokens += len(s.Tokens)
	}

	room := m.scratch.Get().(*scratch)
	defer m.scratch.Put(room)
	room.fit(m.config, tokens)
	m.embed(batch, room.hidden)
	for i := range m.layers {
		flops += m.passLayer(i, blockSize, batch, room)
	}
	return flops + m.predict(batch, room), nil
}

func (m *Model) check(blockSize int, s Sequence) error {
	switch {
	case len(s.Tokens) == 0:
		return errors.New("no tokens")
	case s.Start < 0:
		return fmt.Errorf("start is %d", s.Start)
	case s.Start > m.config.Context-len(s.Tokens):
		return fmt.Errorf("%d tokens from position %d exceed the context of %d", len(s.Tokens), s.Start, m.config.Context)
	case s.Logits != nil && len(s.Logits) != m.config.Vocab:
		return fmt.Errorf("room for %d logits, want %d", len(s.Logits), m.config.Vocab)
	}
	for i, token := range s.Tokens {
		if token < 0 || int(token) >= m.config.Vocab {
			return fmt.Errorf("token %d at position %d is outside the vocabulary of %d", token, s.Start+i, m.config.Vocab)
		}
	}
	need := (s.end() + blockSize - 1) / blockSize
	if len(s.Blocks) < need {
		return fmt.Errorf("%d blocks of %d tokens, want %d for %d tokens", len(s.Blocks), blockSize, need, s.end())
	}
	for i, block := range s.Blocks[:need] {
		if len(block) != m.BlockLen(blockSize) {
			return fmt.Errorf("block %d has %d values, want %d", i, len(block), m.BlockLen(blockSize))
		}
	}
	return nil
}

// embed fills the residual stream: one row per token, the sequences one after
// the other.
func (m *Model) embed(batch []Sequence, hidden []float32) {
	width := m.config.Hidden
	row := 0
	for _, s := range batch {
		for _, token := range s.Tokens {
			copy(hidden[row*width:(row+1)*width], m.embedding[int(token)*width:])
			row++
		}
	}
}

// passLayer takes the residual stream through one layer.
func (m *Model) passLayer(index, blockSize int, batch []Sequence, room *scratch) (flops int64) {
	c, l := m.config, &m.layers[index]
	rows := len(room.hidden) / c.Hidden

	normalize(room.hidden, c.Hidden, room.normed)
	flops += l.qkv.project(room.normed, rows, room.qkv)
	row := 0
	for _, s := range batch {
		qkv := room.qkv[row*l.qkv.columns : (row+len(s.Tokens))*l.qkv.columns]
		attended := room.attended[row*c.queryDim() : (row+len(s.Tokens))*c.queryDim()]
		m.keep(index, blockSize, s, qkv)
		flops += m.attend(index, blockSize, s, qkv, attended, room)
		row += len(s.Tokens)
	}
	flops += l.out.project(room.attended, rows, room.normed)
	add(room.hidden, room.normed)

	normalize(room.hidden, c.Hidden, room.normed)
	flops += l.gateUp.project(room.normed, rows, room.gateUp)
	gate(room.gateUp, c.Intermediate, room.gated)
	flops += l.down.project(room.gated, rows, room.normed)
	add(room.hidden, room.normed)
	return flops
}

// keep turns the queries and keys of the new tokens to their positions and
// writes keys and values to the blocks.
func (m *Model) keep(layer, blockSize int, s Sequence, qkv []float32) {
	q, kv := m.config.queryDim(), m.config.kvDim()
	width := q + 2*kv
	for i := range s.Tokens {
		row, position := qkv[i*width:(i+1)*width], s.Start+i
		m.rotary.turn(row[:q+kv], position)
		block, token := s.Blocks[position/blockSize], position%blockSize
		from, to := m.Span(blockSize, layer, Keys, token)
		copy(block[from:to], row[q:q+kv])
		from, to = m.Span(blockSize, layer, Values, token)
		copy(block[from:to], row[q+kv:])
	}
}

// predict computes the logits of the last token of each sequence that wants
// them.
func (m *Model) predict(batch []Sequence, room *scratch) int64 {
	width := m.config.Hidden
	room.last = room.last[:0]
	end, wanted := 0, 0
	for _, s := range batch {
		end += len(s.Tokens)
		if s.Logits != nil {
			room.last = append(room.last, room.hidden[(end-1)*width:end*width]...)
			wanted++
		}
	}
	if wanted == 0 {
		return 0
	}
	normalize(room.last, width, room.last)
	room.logits = fit(room.logits, wanted*m.config.Vocab)
	flops := m.head.project(room.last, wanted, room.logits)
	row := 0
	for _, s := range batch {
		if s.Logits != nil {
			copy(s.Logits, room.logits[row*m.config.Vocab:])
			row++
		}
	}
	return flops
}
