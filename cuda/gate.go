package cuda

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// A gate holds a stream until the host opens it, so that a sequence can be
// enqueued first and timed without the time of enqueueing it.
type gate struct {
	word *uint32 // in pinned memory, which the device reads
	at   Ptr
}

// newGate makes a gate, or none where the driver or the device cannot wait for a
// value in memory.
func (c *Context) newGate(undo *cleanup) (*gate, error) {
	if c.api.streamValue == nil {
		return nil, nil
	}
	h, err := c.AllocHost(Pinned, 4096)
	if err != nil {
		return nil, err
	}
	undo.add(func() error { return c.FreeHost(h) })
	g := &gate{word: (*uint32)(unsafe.Pointer(&h.Bytes[0]))}
	if g.at, err = c.devicePointer(h); err != nil {
		return nil, err
	}
	g.open()
	s, err := c.NewStream()
	if err != nil {
		return nil, err
	}
	// An open gate tells whether the device can do it at all.
	err = errors.Join(g.hold(c, s), c.DestroyStream(s))
	if errors.Is(err, NotSupported) {
		return nil, nil
	}
	return g, err
}

func (g *gate) close() { atomic.StoreUint32(g.word, 0) }
func (g *gate) open()  { atomic.StoreUint32(g.word, 1) }

// hold makes a stream wait until the gate is open.
func (g *gate) hold(c *Context, s Stream) error {
	const atLeast = 0 // CU_STREAM_WAIT_VALUE_GEQ
	return c.check("cuStreamWaitValue32_v2", c.api.streamValue(s, g.at, 1, atLeast))
}
