package cuda

import "fmt"

// A Pool is paged KV in device memory. Plane p is one plane of one layer, layers
// outermost; its unit of physical block b is the UnitBytes bytes at
// Planes[p] + b*BlockStride. kvsum.Pool has the layouts in use.
type Pool struct {
	Planes      []Ptr
	Blocks      int // physical blocks of every plane
	BlockStride uint64
	UnitBytes   uint64
}

// LayerPlanes lists the planes of layers that have n planes each, planeStride
// bytes apart: 2 for K and V, 1 for MLA and fused layouts.
func LayerPlanes(layers []Ptr, n int, planeStride uint64) []Ptr {
	planes := make([]Ptr, 0, n*len(layers))
	for _, l := range layers {
		for p := range n {
			planes = append(planes, l+Ptr(uint64(p)*planeStride))
		}
	}
	return planes
}

// Limits of the kernels' grid.
const (
	maxPlanes = 65535     // gridDim.y
	maxBlocks = 1<<31 - 1 // gridDim.x
	maxSlices = 65535     // gridDim.z
)

// validate refuses what would fault on the device: a fault ends the process's
// use of it.
func (p Pool) validate(c *Context) error {
	switch {
	case len(p.Planes) == 0 || len(p.Planes) > maxPlanes:
		return fmt.Errorf("%d planes, must be 1 to %d", len(p.Planes), maxPlanes)
	case p.Blocks < 1 || p.Blocks > maxBlocks:
		return fmt.Errorf("%d blocks, must be 1 to %d", p.Blocks, maxBlocks)
	case p.UnitBytes < 1 || p.UnitBytes > 1<<40 || p.BlockStride > 1<<40:
		return fmt.Errorf("units of %d bytes every %d bytes, must be 1 to 2^40", p.UnitBytes, p.BlockStride)
	}
	extent := uint64(p.Blocks-1)*p.BlockStride + p.UnitBytes
	for i, plane := range p.Planes {
		base, size, err := c.AddressRange(plane)
		if err != nil {
			return fmt.Errorf("plane %d at %#x: %w", i, uint64(plane), err)
		}
		if offset := uint64(plane - base); offset > size || extent > size-offset {
			return fmt.Errorf("plane %d at %#x: %d blocks end at byte %d of an allocation of %d",
				i, uint64(plane), p.Blocks, offset+extent, size)
		}
	}
	return nil
}

// check refuses block ids outside the pool.
func (p Pool) check(blocks []uint32) error {
	for i, b := range blocks {
		if int(b) >= p.Blocks {
			return fmt.Errorf("block %d (number %d of the list) of a pool of %d blocks", b, i, p.Blocks)
		}
	}
	return nil
}

// sliceBytes is about what one thread block digests: enough to keep it busy,
// little enough that few large units still fill the device.
const sliceBytes = 64 << 10

// grid is the launch grid over n blocks and the 16-byte vectors in one slice.
func (p Pool) grid(n int) (grid [3]uint32, slice uint64) {
	slices := min(max(1, (p.UnitBytes+sliceBytes-1)/sliceBytes), maxSlices)
	return [3]uint32{uint32(n), uint32(len(p.Planes)), uint32(slices)}, (p.UnitBytes/16 + slices - 1) / slices
}
