package lmcache

import (
	"fmt"
	"math"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// elementBytes are the types of KV that can be registered.
var elementBytes = map[string]int{"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1}

// A view is one layer of a client's paged KV: where plane p (K, then V; only
// one for MLA), block b, token s of it and head h lie, run bytes each.
type view struct {
	bytes  []byte // the whole segment; nil on a GPU
	tensor int    // its number there
	dtype  string
	first  int // byte of the first element

	planes, blocks, slots, heads, run         int
	planeStep, blockStep, slotStep, headsStep int // bytes

	planeFirst bool // the block is the second axis, not the first: the order of a checksum
}

// newView reads the shape of a tensor in a segment of that many bytes. Formats as LMCache 0.5.6 tells them
// apart: [2, blocks, tokens, heads, size] and, with hint HND, [2, blocks,
// heads, tokens, size]; the same with the blocks in front; [blocks, tokens,
// width] for MLA; [blocks, tokens, heads, 2*size] and its HND with K and V side
// by side, as vLLM 0.26 has it.
func newView(t *wire.Tensor, hint string, segment int) (*view, error) {
	size, known := elementBytes[t.DType]
	if !known {
		return nil, fmt.Errorf("a tensor of %q: known are float16, bfloat16, float32 and uint8", t.DType)
	}
	if len(t.Stride) != len(t.Shape) {
		return nil, fmt.Errorf("a tensor with %d dimensions and %d strides", len(t.Shape), len(t.Stride))
	}
	if err := checkExtent(t, size, segment); err != nil {
		return nil, err
	}
	v := &view{dtype: t.DType, first: t.Start * size, planes: 1}
	at := func(axis int) (length, step int) { return t.Shape[axis], t.Stride[axis] * size }
	var last int
	switch len(t.Shape) {
	case 5:
		plane, block := 0, 1
		if t.Shape[0] != 2 {
			plane, block = 1, 0
		}
		v.planeFirst = plane == 0
		if v.planes, v.planeStep = at(plane); v.planes != 2 {
			return nil, fmt.Errorf("a tensor of shape %v: K and V must be the first axis, or the second", t.Shape)
		}
		v.blocks, v.blockStep = at(block)
		v.tokensAndHeads(at, 2, hint)
		last = 4
	case 4:
		v.blocks, v.blockStep = at(0)
		v.tokensAndHeads(at, 1, hint)
		last = 3
		if t.Shape[last]%2 != 0 {
			return nil, fmt.Errorf("a tensor of shape %v: K and V side by side need an even width", t.Shape)
		}
		v.planes, v.planeStep = 2, t.Shape[last]/2*size
	case 3:
		v.blocks, v.blockStep = at(0)
		v.slots, v.slotStep = at(1)
		v.heads, last = 1, 2
	default:
		return nil, fmt.Errorf("a tensor of shape %v: want 3 to 5 dimensions", t.Shape)
	}
	if t.Stride[last] != 1 && t.Shape[last] > 1 {
		return nil, fmt.Errorf("a tensor with stride %d between the values of a head: must be 1", t.Stride[last])
	}
	v.run = t.Shape[last] * size
	if len(t.Shape) == 4 {
		v.run /= 2
	}
	if v.heads > 1 && v.headsStep == v.run {
		v.heads, v.run = 1, v.heads*v.run
	}
	return v, nil
}

func (v *view) tokensAndHeads(at func(int) (int, int), axis int, hint string) {
	if hint == "HND" {
		v.heads, v.headsStep = at(axis)
		v.slots, v.slotStep = at(axis + 1)
		return
	}
	v.slots, v.slotStep = at(axis)
	v.heads, v.headsStep = at(axis + 1)
}

// checkExtent refuses what would reach beyond the segment.
func checkExtent(t *wire.Tensor, size, segment int) error {
	last := t.Start
	if t.Start < 0 || t.Start > math.MaxInt32<<16 {
		return fmt.Errorf("a tensor that begins at element %d", t.Start)
	}
	for axis, n := range t.Shape {
		step := t.Stride[axis]
		if n < 1 || step < 0 || n > math.MaxInt32 || step > math.MaxInt32<<8 {
			return fmt.Errorf("a tensor of shape %v with strides %v", t.Shape, t.Stride)
		}
		if last += (n - 1) * step; last < 0 || last > segment {
			return fmt.Errorf("a tensor of shape %v with strides %v reaches beyond its segment of %d bytes", t.Shape, t.Stride, segment)
		}
	}
	if (last+1)*size > segment {
		return fmt.Errorf("a tensor of shape %v of %s from element %d reaches beyond its segment of %d bytes", t.Shape, t.DType, t.Start, segment)
	}
	return nil
}

// tokenBytes is the KV of one token in one plane.
func (v *view) tokenBytes() int { return v.heads * v.run }

// at is the first byte of a head of a token.
func (v *view) at(plane, block, slot, head int) int {
	return v.first + plane*v.planeStep + block*v.blockStep + slot*v.slotStep + head*v.headsStep
}

// eachRun calls f for the runs of n tokens of one plane of one block: where each
// lies in the view, and its part of a piece of an object, in which they lie one
// after the other.
func (v *view) eachRun(piece []byte, plane, block, slot, n int, f func(at int, part []byte)) {
	run, pieces := v.run, n*v.heads
	if v.heads == 1 && (v.slotStep == run || n == 1) {
		run, pieces = n*run, 1
	}
	for i := range pieces {
		at := v.at(plane, block, slot, 0)
		if pieces > 1 {
			at = v.at(plane, block, slot+i/v.heads, i%v.heads)
		}
		f(at, piece[i*run:(i+1)*run])
	}
}
