// Package gpukv is paged KV in device memory for the client of a cache server:
// what an engine on a GPU has, without the engine. The server gets it through an
// IPC handle of the driver and copies by itself; what came back is compared on
// the device.
//
//	driver, err := cuda.Load() // errors.Is(err, cuda.ErrNoDriver): there is no GPU
//	client, err := server.Connect(ctx, lmcmp.Config{
//		Shape: shape, GPU: true,
//		NewMemory: func(worker int) (lmcmp.Memory, error) { return gpukv.New(driver, worker, shape) },
//	})
//
// # What is compared
//
// Content is generated on the host, into pinned memory, and copied to the device
// outside the clock. Its checksums (package kvsum) follow from its seed and never
// from bytes that were on a device. After a retrieve the kernel computes those of
// every block of every plane in place; only a block whose checksum differs is
// copied back, to name the byte.
//
// # When
//
// A server answers when its copies are enqueued, with an event that comes when
// they are done. Wait waits for that event, so a time that ends with it is the
// time of the copy and not of the reply.
package gpukv

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// Memory is the paged KV of one worker on a device: one allocation for all
// layers. It has a thread of its own on the device, so that workers do not wait
// for each other.
type Memory struct {
	device *cuda.Device
	shape  lmcmp.Shape

	tensors []wire.Tensor
	groups  []group
	seed    uint64 // of the checksums
	closed  bool

	// Used on the device's thread.
	stream  cuda.Stream
	staging *cuda.HostMemory
	ready   cuda.Event     // behind what was put into the memory last
	handle  cuda.IPCHandle // of ready
	undo    []func(*cuda.Context) error
}

// A group is the layers that have units of one size.
type group struct {
	lmcmp.Group
	first    int        // number of its first layer
	planes   []cuda.Ptr // layers outermost
	digester *cuda.Digester
}

// Sizes.
const (
	allocationUnit = 2 << 20  // smaller allocations share a block, which a handle would expose whole
	layerAlign     = 256      // bytes, as of any allocation of the driver
	stagingBytes   = 16 << 20 // of pinned memory, or one block
)

// New makes paged KV of that shape on a device, with undefined content. The
// worker's number chooses the device, in turn where there are fewer.
func New(driver *cuda.Driver, worker int, shape lmcmp.Shape) (*Memory, error) {
	n, err := driver.Count()
	if err == nil && n == 0 {
		err = errors.New("the driver shows no device (CUDA_VISIBLE_DEVICES may hide it)")
	}
	if err != nil {
		return nil, fmt.Errorf("placing KV on a GPU: %w", err)
	}
	device, err := driver.Open(worker % n)
	if err != nil {
		return nil, err
	}
	m := &Memory{device: device, shape: shape, seed: rand.Uint64()}
	if err := device.Do(m.setUp); err != nil {
		return nil, errors.Join(fmt.Errorf("placing KV of shape %s on GPU %d (%s): %w", shape, worker%n, device.Info.Name, err), m.Close())
	}
	return m, nil
}

func (m *Memory) later(f func(*cuda.Context) error) { m.undo = append(m.undo, f) }

func (m *Memory) setUp(c *cuda.Context) error {
	var offsets []int // of the layers
	size, largest := 0, 0
	for _, g := range m.shape {
		for range g.Layers {
			offsets = append(offsets, size)
			size += (g.LayerBytes() + layerAlign - 1) / layerAlign * layerAlign
		}
		largest = max(largest, g.BlockBytes())
	}
	size = (size + allocationUnit - 1) / allocationUnit * allocationUnit
	free, total, err := c.MemoryInfo()
	if err != nil {
		return err
	}
	if uint64(size) > free {
		return fmt.Errorf("it takes %d bytes, %d of %d are free", size, free, total)
	}
	base, err := c.Alloc(uint64(size))
	if err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.Free(base) })
	if m.stream, err = c.NewStream(); err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.DestroyStream(m.stream) })
	if m.staging, err = c.AllocHost(cuda.Pinned, max(largest, min(stagingBytes, size))); err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.FreeHost(m.staging) })
	if m.ready, err = c.NewSharedEvent(); err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.DestroyEvent(m.ready) })
	if m.handle, err = c.ExportEvent(m.ready); err != nil {
		return err
	}
	if err := c.Record(m.ready, m.stream); err != nil {
		return err
	}
	if err := m.describe(c, base, offsets); err != nil {
		return err
	}
	return m.addGroups(c, base, offsets)
}

// describe makes the descriptors of the layers.
func (m *Memory) describe(c *cuda.Context, base cuda.Ptr, offsets []int) error {
	h, start, _, err := c.ExportMemory(base)
	if err != nil {
		return err
	}
	for _, g := range m.shape {
		shape, stride := g.Dims()
		for range g.Layers {
			m.tensors = append(m.tensors, wire.Tensor{
				Kind: wire.CUDARaw, Handle: h.Data[:], Offset: int(start) + offsets[len(m.tensors)], Bytes: g.LayerBytes(),
				DType: g.DType, Shape: shape, Stride: stride, Device: m.device.Info.UUID.String(),
			})
		}
	}
	return nil
}

// addGroups prepares the checksums of each group.
func (m *Memory) addGroups(c *cuda.Context, base cuda.Ptr, offsets []int) error {
	first := 0
	for _, s := range m.shape {
		g := group{Group: s, first: first}
		var layers []cuda.Ptr
		for i := range s.Layers {
			layers = append(layers, base+cuda.Ptr(offsets[first+i]))
		}
		unit := uint64(s.BlockBytes())
		g.planes = cuda.LayerPlanes(layers, s.Planes, uint64(s.Blocks)*unit)
		var err error
		g.digester, err = c.NewDigester(cuda.Pool{Planes: g.planes, Blocks: s.Blocks, BlockStride: unit, UnitBytes: unit}, s.Blocks)
		if err != nil {
			return err
		}
		m.later(func(c *cuda.Context) error { return g.digester.Close(c) })
		m.groups = append(m.groups, g)
		first += s.Layers
	}
	return nil
}

// Tensors describes the layers, which are parts of one allocation.
func (m *Memory) Tensors() []wire.Tensor { return m.tensors }

// Registered does nothing: a handle leaves nothing behind.
func (m *Memory) Registered() error { return nil }

// Wait returns when the device has reached an event: the one that Write and
// Poison return, or one of another process.
func (m *Memory) Wait(event []byte) error {
	var h cuda.IPCHandle
	if len(event) != len(h.Data) {
		return fmt.Errorf("an event of %d bytes (%q): the handle of one has %d; a server without a GPU has none", len(event), event, len(h.Data))
	}
	copy(h.Data[:], event)
	return m.device.Do(func(c *cuda.Context) error {
		if h == m.handle { // a process cannot open its own
			return c.SyncEvent(m.ready)
		}
		e, err := c.OpenEvent(h)
		if err != nil {
			return err
		}
		return errors.Join(c.SyncEvent(e), c.DestroyEvent(e))
	})
}

// Close gives the memory back. The server must have closed its mapping before,
// which is when it has answered that the instance is unregistered.
func (m *Memory) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	err := m.device.Do(func(c *cuda.Context) error {
		var err error
		for i := len(m.undo) - 1; i >= 0; i-- {
			err = errors.Join(err, m.undo[i](c))
		}
		return err
	})
	return errors.Join(err, m.device.Close())
}

var _ lmcmp.Memory = (*Memory)(nil)
