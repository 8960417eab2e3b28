package kvsum

import "fmt"

// A Pool is paged KV in host memory. Plane p is one plane of one layer, layers
// outermost; its unit of physical block b is the UnitBytes bytes at
// b*BlockStride. That one rule covers the layouts in use (NB blocks of BS
// tokens, element size e):
//
//	layout                             planes a layer       block stride   unit
//	(2, NB, BS, NH, HS)                2, each its half     BS*NH*HS*e     BS*NH*HS*e
//	(NB, 2, BS, NH, HS)                2, second at +unit   2*unit         BS*NH*HS*e
//	(NB, BS, W), MLA; (NB, NH, BS, 2HS)  1                  unit           whole block
//	block first, all layers in it      offset in the block  whole block    the layer's part
type Pool struct {
	Planes      [][]byte
	BlockStride int // bytes from one physical block to the next
	UnitBytes   int
}

// Sum checksums the given physical blocks of every plane.
func (p Pool) Sum(blocks []uint32, seed uint64) (Table, error) {
	t := Table{Planes: len(p.Planes), Blocks: len(blocks), UnitBytes: p.UnitBytes}
	t.Sums = make([]uint64, 0, t.Planes*t.Blocks)
	err := p.each(blocks, func(unit []byte, _ uint64) {
		t.Sums = append(t.Sums, Sum(unit, seed))
	})
	return t, err
}

// Fill fills the given physical blocks of every plane; FilledTable gives the
// table that Sum returns afterwards.
func (p Pool) Fill(blocks []uint32, seed uint64) error {
	return p.each(blocks, func(unit []byte, u uint64) { Fill(unit, u, seed) })
}

// each calls f with every unit and its logical number, after checking all.
func (p Pool) each(blocks []uint32, f func(unit []byte, u uint64)) error {
	if p.UnitBytes < 1 || p.BlockStride < 1 {
		return fmt.Errorf("walking a pool of %d-byte units every %d bytes: both must be positive", p.UnitBytes, p.BlockStride)
	}
	for i, plane := range p.Planes {
		for j, b := range blocks {
			if end := int64(b)*int64(p.BlockStride) + int64(p.UnitBytes); end > int64(len(plane)) {
				return fmt.Errorf("walking block %d (number %d of the list) of plane %d: it ends at byte %d of %d", b, j, i, end, len(plane))
			}
		}
	}
	u := uint64(0)
	for _, plane := range p.Planes {
		for _, b := range blocks {
			at := int(b) * p.BlockStride
			f(plane[at:at+p.UnitBytes:at+p.UnitBytes], u)
			u++
		}
	}
	return nil
}
