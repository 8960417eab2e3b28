package gpukv

import (
	"fmt"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/cuda/kvsum"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

// A run is blocks that follow each other in memory and in the list.
type run struct{ first, id, n int }

// runsOf splits a list of block ids into runs of at most that many.
func runsOf(blocks []int, most int) []run {
	var runs []run
	for i, id := range blocks {
		if last := len(runs) - 1; last >= 0 && runs[last].id+runs[last].n == id && runs[last].n < most {
			runs[last].n++
			continue
		}
		runs = append(runs, run{i, id, 1})
	}
	return runs
}

// check refuses ids outside the memory: what is written there would be somebody
// else's.
func (m *Memory) check(blocks []int) error {
	for _, id := range blocks {
		if id < 0 || id >= m.shape.Blocks() {
			return fmt.Errorf("block %d of %d", id, m.shape.Blocks())
		}
	}
	return nil
}

// each calls f for every run of every plane, with its address and the bytes of
// a block.
func (m *Memory) each(blocks []int, most func(blockBytes int) int, f func(r run, layer, plane int, at cuda.Ptr, unit int) error) error {
	if err := m.check(blocks); err != nil {
		return err
	}
	for _, g := range m.groups {
		unit := g.BlockBytes()
		runs := runsOf(blocks, most(unit))
		for p, at := range g.planes {
			for _, r := range runs {
				if err := f(r, g.first+p/g.Planes, p%g.Planes, at+cuda.Ptr(r.id*unit), unit); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Write generates content into pinned memory and copies it to the blocks.
func (m *Memory) Write(blocks []int, content lmcmp.Content) ([]byte, error) {
	return m.put(func(c *cuda.Context) error {
		used := len(m.staging.Bytes) // of the staging memory; an earlier Write may still use it
		fits := func(unit int) int { return len(m.staging.Bytes) / unit }
		return m.each(blocks, fits, func(r run, layer, plane int, at cuda.Ptr, unit int) error {
			if used+r.n*unit > len(m.staging.Bytes) {
				if err := c.Sync(m.stream); err != nil {
					return err
				}
				used = 0
			}
			for i := range r.n {
				from := used + i*unit
				content.Fill(m.staging.Bytes[from:from+unit], layer, plane, content.First+r.first+i)
			}
			err := c.WriteAsync(at, m.staging, used, r.n*unit, m.stream)
			used += r.n * unit
			return err
		})
	})
}

// Poison overwrites blocks on the device.
func (m *Memory) Poison(blocks []int) ([]byte, error) {
	return m.put(func(c *cuda.Context) error {
		all := func(int) int { return len(blocks) }
		return m.each(blocks, all, func(r run, _, _ int, at cuda.Ptr, unit int) error {
			return c.Set(at, lmcmp.PoisonByte, uint64(r.n*unit), m.stream)
		})
	})
}

// put runs f, which enqueues work, and records the event behind it.
func (m *Memory) put(f func(*cuda.Context) error) (event []byte, err error) {
	err = m.device.Do(func(c *cuda.Context) error {
		if err := f(c); err != nil {
			return err
		}
		return c.Record(m.ready, m.stream)
	})
	return m.handle.Data[:], err
}

// Verify compares checksums on the device, and bytes where they differ.
func (m *Memory) Verify(blocks []int, content lmcmp.Content) (found []lmcmp.Mismatch, err error) {
	if err := m.check(blocks); err != nil || len(blocks) == 0 {
		return nil, err
	}
	ids := make([]uint32, len(blocks))
	for i, id := range blocks {
		ids[i] = uint32(id)
	}
	err = m.device.Do(func(c *cuda.Context) error {
		for _, g := range m.groups {
			if err := c.Wait(g.digester.Stream, m.ready); err != nil {
				return err
			}
			got, err := g.digester.Sum(c, ids, m.seed)
			if err != nil {
				return err
			}
			for _, u := range m.want(g, len(blocks), content).Diff(got) {
				if len(found) == lmcmp.MaxMismatches {
					return nil
				}
				at := lmcmp.Mismatch{
					Layer: g.first + u.Plane/g.Planes, Plane: u.Plane % g.Planes,
					Position: content.First + u.Block, Block: blocks[u.Block],
				}
				mismatch, err := m.look(c, g, u, at, content, len(blocks))
				if err != nil {
					return err
				}
				found = append(found, mismatch)
			}
		}
		return nil
	})
	return found, err
}

// want is the checksums that the content of n blocks has.
func (m *Memory) want(g group, n int, content lmcmp.Content) kvsum.Table {
	t := kvsum.Table{Planes: len(g.planes), Blocks: n, UnitBytes: g.BlockBytes()}
	for p := range t.Planes {
		for i := range n {
			seed := content.FillSeed(g.first+p/g.Planes, p%g.Planes, content.First+i)
			t.Sums = append(t.Sums, kvsum.FilledSum(0, t.UnitBytes, seed, m.seed))
		}
	}
	return t
}

// look copies a block back whose checksum differs, and finds the first byte.
func (m *Memory) look(c *cuda.Context, g group, u kvsum.Unit, at lmcmp.Mismatch, content lmcmp.Content, positions int) (lmcmp.Mismatch, error) {
	b := make([]byte, g.BlockBytes())
	if err := c.Read(b, g.planes[u.Plane]+cuda.Ptr(at.Block*len(b))); err != nil {
		return at, err
	}
	found, differs := content.Compare(b, at, positions)
	if !differs {
		return at, fmt.Errorf("the checksum of paged block %d of layer %d, plane %d differs on the device, and its bytes do not when they are copied back: "+
			"the device or the copy is not to be trusted, or somebody still writes there", at.Block, at.Layer, at.Plane)
	}
	return found, nil
}
