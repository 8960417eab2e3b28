package lmcmp

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

// DefaultShape is that of upstream's benchmark: 2 GiB of KV.
const DefaultShape = "(2,1024,16,8,128):float16:32"

// A Group is the geometry of consecutive layers. A layer is a tensor of
// [Planes, Blocks, BlockSize, Heads, HeadSize] elements; with one plane (MLA)
// [Blocks, BlockSize, Heads*HeadSize].
type Group struct {
	Planes    int // 2: K and V; 1: MLA
	Blocks    int // paged blocks
	BlockSize int // tokens in a block
	Heads     int
	HeadSize  int // elements
	DType     string
	Layers    int
}

// A Shape is that of a paged KV cache: one group or more, which share Blocks
// and BlockSize.
type Shape []Group

// dtypes are the types of elements and their bytes.
var dtypes = map[string]int{"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1, "int8": 1}

const dtypeNames = "float16, bfloat16, float32, uint8, int8"

var groupForm = regexp.MustCompile(`^\(([^()]*)\):([^:]*):([^:]*)$`)

// ParseShape reads a shape in upstream's grammar: groups of
// (planes,blocks,block size,heads,head size):dtype:layers, joined by
// semicolons. Blanks and empty groups are skipped. Unlike upstream it refuses
// numbers that are not positive and sizes that overflow. Zero blocks or a
// block size of zero are left for [Shape.WithBlocks] to fill in.
func ParseShape(spec string) (Shape, error) {
	var shape Shape
	for part := range strings.SplitSeq(spec, ";") {
		part = strings.Join(strings.Fields(part), "")
		if part == "" {
			continue
		}
		g, err := parseGroup(part)
		if err != nil {
			return nil, fmt.Errorf("KV shape %q: group %d, %q: %w", spec, len(shape), part, err)
		}
		shape = append(shape, g)
	}
	if len(shape) == 0 {
		return nil, fmt.Errorf("KV shape %q: it has no group; one is (2,1024,16,8,128):float16:32", spec)
	}
	for _, g := range shape[1:] {
		if g.Blocks != shape[0].Blocks || g.BlockSize != shape[0].BlockSize {
			return nil, fmt.Errorf("KV shape %q: all groups must have the same blocks and block size, not %dx%d and %dx%d", spec, shape[0].Blocks, shape[0].BlockSize, g.Blocks, g.BlockSize)
		}
	}
	return shape, nil
}

func parseGroup(part string) (Group, error) {
	m := groupForm.FindStringSubmatch(part)
	if m == nil {
		return Group{}, errors.New("want (planes,blocks,block size,heads,head size):dtype:layers")
	}
	dims := strings.Split(m[1], ",")
	if len(dims) != 5 {
		return Group{}, fmt.Errorf("%d dimensions, want 5: planes, blocks, block size, heads, head size", len(dims))
	}
	g := Group{DType: strings.ToLower(m[2])}
	if dtypes[g.DType] == 0 {
		return Group{}, fmt.Errorf("dtype %q is not known; there are %s", m[2], dtypeNames)
	}
	for i, field := range []struct {
		name string
		to   *int
		zero bool // may be left open
	}{
		{"planes", &g.Planes, false},
		{"blocks", &g.Blocks, true},
		{"block size", &g.BlockSize, true},
		{"heads", &g.Heads, false},
		{"head size", &g.HeadSize, false},
		{"layers", &g.Layers, false},
	} {
		text := m[3]
		if i < len(dims) {
			text = dims[i]
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return Group{}, fmt.Errorf("%s %q is not an integer", field.name, text)
		}
		if n < 0 || n == 0 && !field.zero {
			return Group{}, fmt.Errorf("%s %d: must be positive", field.name, n)
		}
		*field.to = n
	}
	if g.Planes > 2 {
		return Group{}, fmt.Errorf("planes %d: 2 for K and V, 1 for MLA", g.Planes)
	}
	if g.size() < 0 {
		return Group{}, errors.New("its size overflows")
	}
	return g, nil
}

// size is the bytes of all layers, -1 when it overflows; open fields count as 1.
func (g Group) size() int {
	total := uint64(1)
	for _, n := range []int{g.Planes, max(g.Blocks, 1), max(g.BlockSize, 1), g.Heads, g.HeadSize, dtypes[g.DType], g.Layers} {
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 || low > 1<<62 {
			return -1
		}
		total = low
	}
	return int(total)
}

// WithBlocks fills in the number of blocks and the block size where the shape
// leaves them open, which is 0. Where it does not, and a value that was asked
// for differs, that is an error: one of the two is not what was meant. 0 asks
// for nothing.
func (s Shape) WithBlocks(blocks, blockSize int) (Shape, error) {
	filled := make(Shape, len(s))
	for i, g := range s {
		for _, field := range []struct {
			name  string
			have  *int
			asked int
		}{{"blocks", &g.Blocks, blocks}, {"block size", &g.BlockSize, blockSize}} {
			switch {
			case field.asked < 0:
				return nil, fmt.Errorf("%s %d: must be positive", field.name, field.asked)
			case *field.have == 0 && field.asked == 0:
				return nil, fmt.Errorf("the KV shape %s leaves the %s open and none was asked for", s, field.name)
			case *field.have == 0:
				*field.have = field.asked
			case field.asked != 0 && field.asked != *field.have:
				return nil, fmt.Errorf("the KV shape %s has the %s %d, not %d; leave it at 0 in the shape, or do not ask for another", s, field.name, *field.have, field.asked)
			}
		}
		if g.size() < 0 {
			return nil, fmt.Errorf("KV shape %s with %d blocks of %d: its size overflows", s, g.Blocks, g.BlockSize)
		}
		filled[i] = g
	}
	return filled, nil
}

// CheckChunk says whether a server's chunk of that many tokens consists of
// whole blocks.
func (s Shape) CheckChunk(chunk int) error {
	if b := s.BlockSize(); chunk <= 0 || chunk%b != 0 {
		return fmt.Errorf("the server's chunk of %d tokens is not a multiple of the block size %d of the KV shape %s", chunk, b, s)
	}
	return nil
}

// String is the shape in the grammar that ParseShape reads.
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, g := range s {
		parts[i] = fmt.Sprintf("(%d,%d,%d,%d,%d):%s:%d", g.Planes, g.Blocks, g.BlockSize, g.Heads, g.HeadSize, g.DType, g.Layers)
	}
	return strings.Join(parts, ";")
}

// Blocks is the number of paged blocks.
func (s Shape) Blocks() int { return s[0].Blocks }

// BlockSize is the number of tokens in a block.
func (s Shape) BlockSize() int { return s[0].BlockSize }

// Layers is the number of layers of all groups.
func (s Shape) Layers() int {
	n := 0
	for _, g := range s {
		n += g.Layers
	}
	return n
}

// MLA says whether there is one plane instead of K and V, in all groups.
func (s Shape) MLA() bool {
	for _, g := range s {
		if g.Planes != 1 {
			return false
		}
	}
	return true
}

// Bytes is the size of the whole cache.
func (s Shape) Bytes() int {
	n := 0
	for _, g := range s {
		n += g.size()
	}
	return n
}

// TokenBytes is the size of one token's KV in all layers.
func (s Shape) TokenBytes() int { return s.Bytes() / (s.Blocks() * s.BlockSize()) }

// hidden is the width of a token in one plane of a layer, in elements.
func (g Group) hidden() int { return g.Heads * g.HeadSize }

// BlockBytes is the size of a block in one plane of one layer.
func (g Group) BlockBytes() int { return g.BlockSize * g.hidden() * dtypes[g.DType] }

// LayerBytes is the size of one layer.
func (g Group) LayerBytes() int { return g.Planes * g.Blocks * g.BlockBytes() }

// Dims are the dimensions of a layer's tensor and their strides, in elements.
func (g Group) Dims() (shape, stride []int) {
	shape = []int{g.Planes, g.Blocks, g.BlockSize, g.Heads, g.HeadSize}
	if g.Planes == 1 {
		shape = []int{g.Blocks, g.BlockSize, g.hidden()}
	}
	stride = make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		stride[i] = n
		n *= shape[i]
	}
	return shape, stride
}
