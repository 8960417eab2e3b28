package lmcache

import (
	"errors"
	"fmt"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A GPU opens memory that clients have on a device: of kind cuda_raw, behind the
// driver's IPC handles. It comes in from outside, so that a server without one
// needs no driver library. Package gpu beside this one is one.
type GPU interface {
	// Open maps the tensors of one client until Close.
	Open(tensors []wire.Tensor) (GPUMemory, error)
}

// GPUMemory is the tensors of one client. Its methods are called by one
// goroutine at a time.
type GPUMemory interface {
	// Read fills the pieces' bytes from the device, once the event before has
	// come, and returns when they are there; done is an event behind that.
	Read(before []byte, pieces []Piece) (done []byte, err error)
	// Write takes the pieces' bytes over and has them copied to the device once
	// the event before has come. It returns before that is done, which is when
	// the event done comes.
	Write(before []byte, pieces []Piece) (done []byte, err error)
	// Close ends the mapping when all copies are done.
	Close() error
}

// A Piece is a run of bytes of a tensor.
type Piece struct {
	Tensor int // number among those that were opened
	Offset int // bytes from the tensor's beginning
	Bytes  []byte
}

// onGPU says where tensors lie; in both places at once is refused.
func onGPU(tensors []wire.Tensor) (bool, error) {
	for i, t := range tensors {
		if (t.Kind == wire.CUDARaw) != (tensors[0].Kind == wire.CUDARaw) {
			return false, fmt.Errorf("layer %d lies in memory of kind %q and layer 0 of kind %q", i, t.Kind, tensors[0].Kind)
		}
	}
	return len(tensors) > 0 && tensors[0].Kind == wire.CUDARaw, nil
}

// openGPU maps tensors in device memory.
func (p *paged) openGPU(r *wire.RegisterKVCache, gpu GPU) error {
	if gpu == nil {
		return fmt.Errorf("layer 0 lies in memory of kind %q: this server has no GPU", r.Tensors[0].Kind)
	}
	for i := range r.Tensors {
		v, err := newView(&r.Tensors[i], r.Hints.KVLayout, r.Tensors[i].Bytes)
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		v.tensor = i
		p.layers = append(p.layers, v)
	}
	var err error
	if p.gpu, err = gpu.Open(r.Tensors); err != nil {
		return fmt.Errorf("opening %d layers in device memory: %w", len(r.Tensors), err)
	}
	return nil
}

// run copies one run of bytes between a layer and an object, or notes it for
// the device.
func (c *copying) run(v *view, at int, part []byte, toBlocks bool) {
	switch {
	case c.paged.gpu != nil:
		c.pieces = append(c.pieces, Piece{v.tensor, at, part})
	case toBlocks:
		copy(v.bytes[at:at+len(part)], part)
	default:
		copy(part, v.bytes[at:at+len(part)])
	}
}

// finish carries out what was noted for the device, and returns the event that
// the client waits for.
func (c *copying) finish(before []byte, toBlocks bool) (event []byte, err error) {
	if c.paged.gpu == nil {
		return []byte(stubEvent), nil
	}
	if len(before) != wire.IPCHandleSize {
		return nil, errors.New("a transfer of device memory needs the handle of an event to wait for")
	}
	c.paged.copying.Lock()
	defer c.paged.copying.Unlock()
	if toBlocks {
		return c.paged.gpu.Write(before, c.pieces)
	}
	return c.paged.gpu.Read(before, c.pieces)
}
