package model

import "fmt"

// A Plane is one of the two halves of the KV of a layer.
type Plane int

// The planes, in the order in which a block holds them.
const (
	Keys Plane = iota
	Values
	planes // how many
)

// BlockLen is the number of float32 values in one paged block of blockSize
// tokens, all layers, keys and values.
func (m *Model) BlockLen(blockSize int) int {
	return m.config.Layers * int(planes) * m.planeLen(blockSize)
}

// TokenBytes is the KV of one token in bytes: all layers, keys and values.
func (m *Model) TokenBytes() int { return 4 * m.BlockLen(1) }

// Span says where a token lies in a block: block[from:to] is its plane in one
// layer. token counts within the block.
//
// A block of B tokens is [Layers][2][B][KVHeads][HeadDim] in row-major order:
// per layer the keys of all its tokens and then their values, each token
// KVHeads·HeadDim values together. Keys are stored as attention reads them,
// after the rotary embedding of their position p: the pair (i, i+HeadDim/2) of
// each head is turned by the angle p·RopeTheta^(−2i/HeadDim). Turning that
// pair by d·RopeTheta^(−2i/HeadDim) more moves the key to position p+d.
// Values carry no position.
//
// It panics where an argument is out of range, as indexing does.
func (m *Model) Span(blockSize, layer int, plane Plane, token int) (from, to int) {
	from, _ = m.PlaneSpan(blockSize, layer, plane)
	if token < 0 || token >= blockSize {
		panic(fmt.Sprintf("model: token %d of a block of %d", token, blockSize))
	}
	from += token * m.config.kvDim()
	return from, from + m.config.kvDim()
}

// PlaneSpan says where a plane of a layer lies in a block: block[from:to]
// holds it for all tokens of the block. It panics where an argument is out of
// range.
func (m *Model) PlaneSpan(blockSize, layer int, plane Plane) (from, to int) {
	if blockSize < 1 || layer < 0 || layer >= m.config.Layers || plane < 0 || plane >= planes {
		panic(fmt.Sprintf("model: plane %d of layer %d in a block of %d tokens; the model has %d layers",
			plane, layer, blockSize, m.config.Layers))
	}
	from = (layer*int(planes) + int(plane)) * m.planeLen(blockSize)
	return from, from + m.planeLen(blockSize)
}

func (m *Model) planeLen(blockSize int) int { return blockSize * m.config.kvDim() }
