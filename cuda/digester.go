package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// A Digester checksums and fills blocks of a pool on the device. All of its
// memory is allocated when it is made, so that a measured pass allocates nothing
// there. Its work goes into Stream; let that wait for an event to be ordered
// behind another process's copies.
//
// A Digester is used inside Do, like the Context that made it.
type Digester struct {
	Stream Stream

	pool    Pool
	most    int // blocks in one call
	sums    Ptr // uint64 per plane and block
	planes  Ptr // uint64 per plane
	ids     Ptr // uint32 per block
	host    *HostMemory
	loaded  []uint32 // block ids that are on the device
	pending bool     // host is in use by the stream
	undo    cleanup
}

// NewDigester prepares for up to most blocks a call. Close releases it.
func (c *Context) NewDigester(pool Pool, most int) (*Digester, error) {
	g := &Digester{pool: pool, most: most}
	if err := g.setUp(c); err != nil {
		g.undo.run(&err)
		return nil, fmt.Errorf("preparing to checksum %d blocks of %d planes: %w", most, len(pool.Planes), err)
	}
	return g, nil
}

func (g *Digester) setUp(c *Context) error {
	if g.most < 1 || g.most > maxBlocks {
		return fmt.Errorf("%d blocks a call, must be 1 to %d", g.most, maxBlocks)
	}
	if err := g.pool.validate(c); err != nil {
		return err
	}
	sums, planes := 8*len(g.pool.Planes)*g.most, 8*len(g.pool.Planes)
	var err error
	if g.sums, err = c.Alloc(uint64(sums + planes + 4*g.most)); err != nil {
		return err
	}
	g.undo.add(func() error { return c.Free(g.sums) })
	g.planes = g.sums + Ptr(sums)
	g.ids = g.planes + Ptr(planes)
	if g.host, err = c.AllocHost(Pinned, max(sums, 4*g.most)); err != nil {
		return err
	}
	g.undo.add(func() error { return c.FreeHost(g.host) })
	if g.Stream, err = c.NewStream(); err != nil {
		return err
	}
	g.undo.add(func() error { return c.DestroyStream(g.Stream) })

	for i, p := range g.pool.Planes {
		binary.LittleEndian.PutUint64(g.host.Bytes[8*i:], uint64(p))
	}
	if err := c.WriteAsync(g.planes, g.host, 0, planes, g.Stream); err != nil {
		return err
	}
	return c.Sync(g.Stream)
}

// Close releases what NewDigester allocated.
func (g *Digester) Close(c *Context) error {
	var err error
	g.undo.run(&err)
	return err
}

// Sum checksums the given physical blocks of every plane.
func (g *Digester) Sum(c *Context, blocks []uint32, seed uint64) (kvsum.Table, error) {
	err := g.Enqueue(c, blocks, seed)
	if err == nil {
		return g.Collect(c)
	}
	return kvsum.Table{}, err
}

// Enqueue puts the work of Sum into Stream without waiting. Collect must follow.
func (g *Digester) Enqueue(c *Context, blocks []uint32, seed uint64) error {
	if g.pending {
		return errors.New("cuda: checksumming while the sums before are not collected")
	}
	err := g.load(c, blocks)
	if err == nil {
		err = g.launchSum(c, seed)
	}
	if err == nil {
		err = c.ReadAsync(g.host, 0, 8*len(g.pool.Planes)*len(blocks), g.sums, g.Stream)
	}
	if err != nil {
		return fmt.Errorf("checksumming %d blocks: %w", len(blocks), err)
	}
	g.pending = true
	return nil
}

// Collect waits for Stream and returns the sums that Enqueue asked for.
func (g *Digester) Collect(c *Context) (kvsum.Table, error) {
	if !g.pending {
		return kvsum.Table{}, errors.New("cuda: collecting sums that were not asked for")
	}
	g.pending = false
	if err := c.Sync(g.Stream); err != nil {
		return kvsum.Table{}, fmt.Errorf("checksumming %d blocks: %w", len(g.loaded), err)
	}
	t := kvsum.Table{Planes: len(g.pool.Planes), Blocks: len(g.loaded), UnitBytes: int(g.pool.UnitBytes)}
	t.Sums = make([]uint64, t.Planes*t.Blocks)
	for i := range t.Sums {
		t.Sums[i] = binary.LittleEndian.Uint64(g.host.Bytes[8*i:])
	}
	return t, nil
}

// Fill fills the given physical blocks of every plane from a seed and waits.
// kvsum.FilledTable gives the sums that they then have.
func (g *Digester) Fill(c *Context, blocks []uint32, seed uint64) error {
	if g.pending {
		return errors.New("cuda: filling while sums are not collected")
	}
	err := g.load(c, blocks)
	if err == nil {
		grid, _ := g.pool.grid(len(blocks))
		err = c.launch(c.kvfill, grid, g.Stream, uint64(g.planes), uint64(g.ids), g.pool.BlockStride, g.pool.UnitBytes, seed)
	}
	if err == nil {
		err = c.Sync(g.Stream)
	}
	if err != nil {
		return fmt.Errorf("filling %d blocks: %w", len(blocks), err)
	}
	return nil
}

// load checks block ids and enqueues their way to the device.
func (g *Digester) load(c *Context, blocks []uint32) error {
	if len(blocks) < 1 || len(blocks) > g.most {
		return fmt.Errorf("1 to %d blocks can be given", g.most)
	}
	if err := g.pool.check(blocks); err != nil {
		return err
	}
	return g.write(c, blocks)
}

func (g *Digester) write(c *Context, blocks []uint32) error {
	g.loaded = append(g.loaded[:0], blocks...)
	for i, b := range blocks {
		binary.LittleEndian.PutUint32(g.host.Bytes[4*i:], b)
	}
	return c.WriteAsync(g.ids, g.host, 0, 4*len(blocks), g.Stream)
}

// launchSum zeroes the sums and enqueues the kernel over the loaded blocks.
func (g *Digester) launchSum(c *Context, seed uint64) error {
	if err := c.Set(g.sums, 0, uint64(8*len(g.pool.Planes)*len(g.loaded)), g.Stream); err != nil {
		return err
	}
	grid, slice := g.pool.grid(len(g.loaded))
	return c.launch(c.kvsum, grid, g.Stream, uint64(g.sums), uint64(g.planes), uint64(g.ids),
		g.pool.BlockStride, g.pool.UnitBytes, slice, seed)
}
