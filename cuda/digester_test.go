package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/standin"
)

func TestPoolsThatWouldFaultAreRefused(t *testing.T) {
	_, v := openStandIn(t)
	var p Ptr
	do(t, v, func(c *Context) (err error) { p, err = c.Alloc(4096); return err })
	t.Cleanup(func() { do(t, v, func(c *Context) error { return c.Free(p) }) })
	for _, c := range []struct {
		name string
		pool Pool
		most int
		want string
	}{
		{"no planes", Pool{Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1, "0 planes, must be 1 to 65535"},
		{"too many planes", Pool{Planes: make([]Ptr, 65536), Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1, "65536 planes"},
		{"no blocks", Pool{Planes: []Ptr{p}, BlockStride: 1024, UnitBytes: 1024}, 1, "0 blocks"},
		{"empty units", Pool{Planes: []Ptr{p}, Blocks: 4, BlockStride: 1024}, 1, "units of 0 bytes"},
		{"overflowing stride", Pool{Planes: []Ptr{p}, Blocks: 4, BlockStride: 1 << 63, UnitBytes: 1}, 1, "must be 1 to 2^40"},
		{"one block too many", Pool{Planes: []Ptr{p}, Blocks: 5, BlockStride: 1024, UnitBytes: 1024}, 1, "5 blocks end at byte 5120 of an allocation of 4096"},
		{"second plane too far", Pool{Planes: []Ptr{p, p + 1}, Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1, "plane 1 at"},
		{"plane outside", Pool{Planes: []Ptr{64}, Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1, "plane 0 at 0x40: cuda: cuMemGetAddressRange_v2"},
		{"nothing asked", Pool{Planes: []Ptr{p}, Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 0, "0 blocks a call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := v.Do(func(ctx *Context) error { _, err := ctx.NewDigester(c.pool, c.most); return err })
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "preparing to checksum")
		})
	}
	require.Nil(t, v.Dead())
}

// withDigester runs f over two planes of four 256-byte blocks.
func withDigester(c *Context, f func(g *Digester, n *scene) error) (err error) {
	n, err := newScene(c, rand.New(rand.NewPCG(1, 2)), shape{planes: 2, physical: 4, blocks: 3, unit: 256})
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return c.Free(n.base) })
	g, err := c.NewDigester(n.pool, 3)
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return g.Close(c) })
	return f(g, n)
}

func TestBlocksOutsideThePoolAreRefusedOnTheHost(t *testing.T) {
	s, v := openStandIn(t)
	launches := s.Calls("cuLaunchKernel")
	for _, c := range []struct {
		name   string
		blocks []uint32
		want   string
	}{
		{"just outside", []uint32{0, 4}, "block 4 (number 1 of the list) of a pool of 4 blocks"},
		{"far outside", []uint32{1<<32 - 1}, "block 4294967295"},
		{"none", nil, "1 to 3 blocks can be given"},
		{"more than prepared for", []uint32{0, 1, 2, 3}, "1 to 3 blocks can be given"},
	} {
		t.Run(c.name, func(t *testing.T) {
			do(t, v, func(ctx *Context) error {
				return withDigester(ctx, func(g *Digester, _ *scene) error {
					if _, err := g.Sum(ctx, c.blocks, 1); err == nil || !errorContains(err, c.want) {
						return errors.Join(errors.New("Sum"), err)
					}
					if err := g.Fill(ctx, c.blocks, 1); err == nil || !errorContains(err, c.want) {
						return errors.Join(errors.New("Fill"), err)
					}
					return nil
				})
			})
		})
	}
	require.Equal(t, launches, s.Calls("cuLaunchKernel"), "nothing was launched")
}

func TestSumAllocatesNothingOnTheDevice(t *testing.T) {
	s, v := openStandIn(t)
	do(t, v, func(c *Context) error {
		return withDigester(c, func(g *Digester, n *scene) error {
			device, host := s.Calls("cuMemAlloc_v2"), s.Calls("cuMemHostAlloc")
			for i := range 10 {
				if _, err := g.Sum(c, n.blocks, uint64(i)); err != nil {
					return err
				}
			}
			if s.Calls("cuMemAlloc_v2") != device || s.Calls("cuMemHostAlloc") != host {
				return errors.New("Sum allocated")
			}
			return nil
		})
	})
}

func TestSumWaitsForAnEvent(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) error {
		return withDigester(c, func(g *Digester, n *scene) (err error) {
			s, err := c.NewStream()
			if err != nil {
				return err
			}
			defer leave(&err, func() error { return c.DestroyStream(s) })
			done, err := c.NewSharedEvent()
			if err != nil {
				return err
			}
			defer leave(&err, func() error { return c.DestroyEvent(done) })
			before, err := g.Sum(c, n.blocks, 1)
			if err != nil {
				return err
			}
			// A "retrieve" in another stream zeroes everything.
			err = errors.Join(c.Set(n.base, 0, uint64(n.size()), s), c.Record(done, s))
			early, err2 := g.Sum(c, n.blocks, 1)
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			if len(before.Diff(early)) != 0 {
				return errors.New("the streams are ordered without an event: the stand-in cannot show a missing wait")
			}
			if err := c.Wait(g.Stream, done); err != nil {
				return err
			}
			late, err := g.Sum(c, n.blocks, 1)
			if err == nil && len(before.Diff(late)) != 6 {
				err = errors.New("the sums are of before the event")
			}
			return err
		})
	})
}

func TestSumsAreCollectedOnce(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) error {
		return withDigester(c, func(g *Digester, n *scene) error {
			if _, err := g.Collect(c); !errorContains(err, "not asked for") {
				return errors.Join(errors.New("Collect before Enqueue"), err)
			}
			if err := g.Enqueue(c, n.blocks, 1); err != nil {
				return err
			}
			if err := g.Enqueue(c, n.blocks, 1); !errorContains(err, "not collected") {
				return errors.Join(errors.New("Enqueue twice"), err)
			}
			if err := g.Fill(c, n.blocks, 1); !errorContains(err, "not collected") {
				return errors.Join(errors.New("Fill before Collect"), err)
			}
			_, err := g.Collect(c)
			return err
		})
	})
}

// Every call that can fail fails in turn; the leak check of openStandIn is the
// assertion.
func TestFailedCallsLeaveNothing(t *testing.T) {
	s, v := openStandIn(t)
	for call, times := range map[string]int{
		"cuMemGetAddressRange_v2": 2, "cuMemAlloc_v2": 2, "cuMemHostAlloc": 1, "cuStreamCreate": 1, "cuMemcpyHtoDAsync_v2": 3,
		"cuStreamSynchronize": 4, "cuMemsetD8Async": 1, "cuLaunchKernel": 2, "cuMemcpyDtoHAsync_v2": 1,
	} {
		for skip := range times {
			s.Fail(call, int32(skip), int32(OutOfMemory))
			err := v.Do(func(c *Context) error {
				return withDigester(c, func(g *Digester, n *scene) error {
					if _, err := g.Sum(c, n.blocks, 1); err != nil {
						return err
					}
					return g.Fill(c, n.blocks, 1)
				})
			})
			require.ErrorIs(t, err, OutOfMemory, "%s failing after %d calls", call, skip)
			require.ErrorContains(t, err, call)
			for i, kind := range standin.Kinds {
				if kind != "modules" && kind != "contexts" {
					require.Zero(t, s.Live(int32(i)), "%s left behind by %s failing after %d calls", kind, call, skip)
				}
			}
		}
	}
}

func TestLayerPlanes(t *testing.T) {
	require.Equal(t, []Ptr{100, 164, 500, 564}, LayerPlanes([]Ptr{100, 500}, 2, 64))
	require.Equal(t, []Ptr{100, 500}, LayerPlanes([]Ptr{100, 500}, 1, 64))
}

func TestGridCoversLargeUnits(t *testing.T) {
	for _, c := range []struct {
		unit   uint64
		slices uint32
	}{{1, 1}, {15, 1}, {65536, 1}, {65537, 2}, {73728, 2}, {1 << 20, 16}, {1 << 40, 65535}} {
		grid, slice := Pool{Planes: make([]Ptr, 3), UnitBytes: c.unit}.grid(7)
		require.Equal(t, [3]uint32{7, 3, c.slices}, grid, "unit of %d bytes", c.unit)
		require.GreaterOrEqual(t, slice*uint64(c.slices), c.unit/16, "unit of %d bytes", c.unit)
	}
}
