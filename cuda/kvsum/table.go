package kvsum

import "fmt"

// A Table holds one sum per plane and block: unit (p, b) at Sums[p*Blocks+b],
// where b counts the block list of the request.
type Table struct {
	Planes, Blocks int
	UnitBytes      int
	Sums           []uint64
}

// FilledTable is the table of units that were filled from fillSeed, computed
// from the seeds alone.
func FilledTable(planes, blocks, unitBytes int, fillSeed, sumSeed uint64) Table {
	t := Table{Planes: planes, Blocks: blocks, UnitBytes: unitBytes, Sums: make([]uint64, planes*blocks)}
	for u := range t.Sums {
		t.Sums[u] = FilledSum(uint64(u), unitBytes, fillSeed, sumSeed)
	}
	return t
}

// At is the sum of block b of plane p.
func (t Table) At(p, b int) uint64 { return t.Sums[p*t.Blocks+b] }

// Chunk folds blocks [from, to) of all planes, plane by plane: the value of one
// chunk of a cache server when a chunk is those blocks.
func (t Table) Chunk(from, to int) uint64 {
	f := newFolder(t.Planes*(to-from), t.UnitBytes)
	for p := range t.Planes {
		for b := from; b < to; b++ {
			f.add(t.At(p, b))
		}
	}
	return f.h
}

// Request folds everything.
func (t Table) Request() uint64 { return t.Chunk(0, t.Blocks) }

// A Unit names one unit of a table.
type Unit struct{ Plane, Block int }

// Layer is the unit's layer and the plane within it, when every layer has
// planesPerLayer planes.
func (u Unit) Layer(planesPerLayer int) (layer, plane int) {
	return u.Plane / planesPerLayer, u.Plane % planesPerLayer
}

func (u Unit) String() string { return fmt.Sprintf("plane %d, block %d of the list", u.Plane, u.Block) }

// Diff lists the units whose sums differ, in order. Tables of other shapes
// differ everywhere: all units of the larger one are listed.
func (t Table) Diff(other Table) []Unit {
	var out []Unit
	if t.Planes == other.Planes && t.Blocks == other.Blocks && t.UnitBytes == other.UnitBytes {
		for u, sum := range t.Sums {
			if sum != other.Sums[u] {
				out = append(out, Unit{Plane: u / t.Blocks, Block: u % t.Blocks})
			}
		}
		return out
	}
	larger := t
	if len(other.Sums) > len(t.Sums) {
		larger = other
	}
	for u := range larger.Sums {
		out = append(out, Unit{Plane: u / larger.Blocks, Block: u % larger.Blocks})
	}
	return out
}
