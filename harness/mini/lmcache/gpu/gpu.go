// Package gpu lets the miniature cache server copy out of and into the device
// memory of its clients, through the IPC handles of CUDA's driver:
//
//	driver, err := cuda.Load()
//	s, err := lmcache.Start(ctx, lmcache.Config{GPU: gpu.New(driver)})
//
// It is a package of its own because whoever imports cuda is linked dynamically,
// and the server without a GPU need not be.
package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// Devices opens memory on the devices of a driver.
type Devices struct {
	driver *cuda.Driver

	// Finish runs the wait for copies that were answered before they were done;
	// nil: at once, beside what comes next. It is for tests of who waits.
	Finish func(wait func())
}

// New makes the devices of a driver available to a server.
func New(driver *cuda.Driver) *Devices { return &Devices{driver: driver} }

// memory is the tensors of one client. The device's thread is its own, so that
// clients do not wait for each other.
type memory struct {
	device  *cuda.Device
	finish  func(wait func())
	tensors []tensor

	// Used on the device's thread.
	stream  cuda.Stream
	done    cuda.Event
	handle  cuda.IPCHandle // of done
	staging *cuda.HostMemory
	events  map[cuda.IPCHandle]cuda.Event // of the client
	undo    []func(*cuda.Context) error

	finishing sync.WaitGroup
}

type tensor struct {
	at    cuda.Ptr
	bytes int
}

// Open maps the allocations in which tensors lie, each once.
func (d *Devices) Open(tensors []wire.Tensor) (lmcache.GPUMemory, error) {
	ordinal, err := d.driver.Find(tensors[0].Device)
	if err != nil {
		return nil, err
	}
	device, err := d.driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	m := &memory{device: device, finish: d.Finish, events: map[cuda.IPCHandle]cuda.Event{}}
	if m.finish == nil {
		m.finish = func(wait func()) { wait() }
	}
	if err := device.Do(func(c *cuda.Context) error { return m.open(c, tensors) }); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *memory) open(c *cuda.Context, tensors []wire.Tensor) (err error) {
	if m.stream, err = c.NewStream(); err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.DestroyStream(m.stream) })
	if m.done, err = c.NewSharedEvent(); err != nil {
		return err
	}
	m.later(func(c *cuda.Context) error { return c.DestroyEvent(m.done) })
	if m.handle, err = c.ExportEvent(m.done); err != nil {
		return err
	}
	bases := map[string]cuda.Ptr{}
	for i, t := range tensors {
		if t.Device != tensors[0].Device {
			return fmt.Errorf("layer %d lies on device %s and layer 0 on %s", i, t.Device, tensors[0].Device)
		}
		base, opened := bases[string(t.Handle)]
		if !opened {
			h, err := handleOf(t.Handle)
			if err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			if base, err = c.OpenMemory(h); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			m.later(func(c *cuda.Context) error { return c.CloseMemory(base) })
			bases[string(t.Handle)] = base
		}
		_, size, err := c.AddressRange(base)
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		if t.Offset < 0 || t.Bytes < 0 || uint64(t.Offset) > size || uint64(t.Bytes) > size-uint64(t.Offset) {
			return fmt.Errorf("layer %d: %d bytes from byte %d of an allocation of %d", i, t.Bytes, t.Offset, size)
		}
		m.tensors = append(m.tensors, tensor{base + cuda.Ptr(t.Offset), t.Bytes})
	}
	return nil
}

func (m *memory) later(f func(*cuda.Context) error) { m.undo = append(m.undo, f) }

func handleOf(b []byte) (h cuda.IPCHandle, err error) {
	if len(b) != len(h.Data) {
		return h, fmt.Errorf("an IPC handle of %d bytes: it has %d", len(b), len(h.Data))
	}
	copy(h.Data[:], b)
	return h, nil
}

// prepare makes room for the pieces and lets the stream wait for the client.
func (m *memory) prepare(c *cuda.Context, before []byte, pieces []lmcache.Piece) error {
	h, err := handleOf(before)
	if err != nil {
		return err
	}
	e, opened := m.events[h]
	if !opened {
		if e, err = c.OpenEvent(h); err != nil {
			return err
		}
		m.events[h] = e
		m.later(func(c *cuda.Context) error { return c.DestroyEvent(e) })
	}
	total := 0
	for _, p := range pieces {
		if p.Tensor >= len(m.tensors) || p.Offset < 0 || p.Offset+len(p.Bytes) > m.tensors[p.Tensor].bytes {
			return fmt.Errorf("%d bytes from byte %d of layer %d: it ends before", len(p.Bytes), p.Offset, p.Tensor)
		}
		total += len(p.Bytes)
	}
	if err := c.Sync(m.stream); err != nil { // whoever used the staging memory last
		return err
	}
	if m.staging != nil && len(m.staging.Bytes) < total {
		old := m.staging
		m.staging = nil
		if err := c.FreeHost(old); err != nil {
			return err
		}
	}
	if m.staging == nil && total > 0 {
		if m.staging, err = c.AllocHost(cuda.Pinned, total); err != nil {
			return err
		}
	}
	return c.Wait(m.stream, e)
}

// each calls f for the pieces, with the place of each on the device and in the
// staging memory.
func (m *memory) each(pieces []lmcache.Piece, f func(p lmcache.Piece, at cuda.Ptr, staged int) error) error {
	staged := 0
	for _, p := range pieces {
		if err := f(p, m.tensors[p.Tensor].at+cuda.Ptr(p.Offset), staged); err != nil {
			return err
		}
		staged += len(p.Bytes)
	}
	return nil
}

// Read copies from the device and waits.
func (m *memory) Read(before []byte, pieces []lmcache.Piece) ([]byte, error) {
	err := m.device.Do(func(c *cuda.Context) error {
		err := m.prepare(c, before, pieces)
		if err == nil {
			err = m.each(pieces, func(p lmcache.Piece, at cuda.Ptr, staged int) error {
				return c.ReadAsync(m.staging, staged, len(p.Bytes), at, m.stream)
			})
		}
		if err == nil {
			err = errors.Join(c.Record(m.done, m.stream), c.Sync(m.stream))
		}
		if err != nil {
			return err
		}
		return m.each(pieces, func(p lmcache.Piece, _ cuda.Ptr, staged int) error {
			copy(p.Bytes, m.staging.Bytes[staged:])
			return nil
		})
	})
	return m.handle.Data[:], err
}

// Write enqueues copies to the device.
func (m *memory) Write(before []byte, pieces []lmcache.Piece) ([]byte, error) {
	err := m.device.Do(func(c *cuda.Context) error {
		err := m.prepare(c, before, pieces)
		if err == nil {
			err = m.each(pieces, func(p lmcache.Piece, at cuda.Ptr, staged int) error {
				copy(m.staging.Bytes[staged:], p.Bytes)
				return c.WriteAsync(at, m.staging, staged, len(p.Bytes), m.stream)
			})
		}
		if err == nil {
			err = c.Record(m.done, m.stream)
		}
		return err
	})
	if err == nil {
		m.finishing.Go(func() {
			m.finish(func() {
				// A fault shows in the next call, too, and there it has somebody to go to.
				_ = m.device.Do(func(c *cuda.Context) error { return c.Sync(m.stream) })
			})
		})
	}
	return m.handle.Data[:], err
}

// Close ends the mapping when all copies are done.
func (m *memory) Close() error {
	m.finishing.Wait()
	err := m.device.Do(func(c *cuda.Context) error {
		err := c.Sync(m.stream)
		if m.staging != nil {
			err = errors.Join(err, c.FreeHost(m.staging))
		}
		for i := len(m.undo) - 1; i >= 0; i-- {
			err = errors.Join(err, m.undo[i](c))
		}
		return err
	})
	return errors.Join(err, m.device.Close())
}
