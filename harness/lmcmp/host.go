package lmcmp

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// HostMemory is paged KV in this machine's memory.
type HostMemory struct {
	shape    Shape
	layers   []layer
	segments []*shm.Segment // nil: private memory
}

// A layer is one tensor.
type layer struct {
	Group
	bytes []byte
}

// NewHostMemory makes paged KV of that shape, zero at first. Shared memory is
// for servers that copy by themselves; it is 0600 and has a segment a layer.
func NewHostMemory(shape Shape, shared bool) (*HostMemory, error) {
	m := &HostMemory{shape: shape}
	if shared {
		if free, err := shm.Free(); err != nil {
			return nil, err
		} else if int64(shape.Bytes()) > free {
			return nil, fmt.Errorf("KV of shape %s takes %d bytes of shared memory, %d are free", shape, shape.Bytes(), free)
		}
	}
	for _, g := range shape {
		for range g.Layers {
			l := layer{Group: g}
			if shared {
				s, err := shm.Create(g.LayerBytes())
				if err != nil {
					return nil, errors.Join(err, m.Close())
				}
				m.segments = append(m.segments, s)
				l.bytes = s.Bytes()
			} else {
				l.bytes = make([]byte, g.LayerBytes())
			}
			m.layers = append(m.layers, l)
		}
	}
	return m, nil
}

// block is the bytes of a block in one plane of a layer.
func (l layer) block(plane, id int) []byte {
	n := l.BlockBytes()
	at := (plane*l.Blocks + id) * n
	return l.bytes[at : at+n]
}

// Tensors describes the segments.
func (m *HostMemory) Tensors() []wire.Tensor {
	var tensors []wire.Tensor
	for i, s := range m.segments {
		shape, stride := m.layers[i].Dims()
		tensors = append(tensors, wire.Tensor{
			Kind: wire.CPUShared, Name: s.Name(), Bytes: len(s.Bytes()),
			DType: m.layers[i].DType, Shape: shape, Stride: stride, Device: "cpu",
		})
	}
	return tensors
}

// Registered removes the names of the segments: the server has mapped them, and
// from here on nothing can be left behind.
func (m *HostMemory) Registered() error {
	var errs []error
	for _, s := range m.segments {
		errs = append(errs, s.Unlink())
	}
	return errors.Join(errs...)
}

// each calls f for the bytes of every block in every plane of every layer.
func (m *HostMemory) each(blocks []int, f func(b []byte, layer, plane, i int)) {
	for number, l := range m.layers {
		for plane := range l.Planes {
			for i, id := range blocks {
				f(l.block(plane, id), number, plane, i)
			}
		}
	}
}

// Write puts content into blocks; the event is empty.
func (m *HostMemory) Write(blocks []int, c Content) ([]byte, error) {
	m.each(blocks, func(b []byte, layer, plane, i int) { c.Fill(b, layer, plane, c.First+i) })
	return nil, nil
}

// Poison overwrites blocks.
func (m *HostMemory) Poison(blocks []int) ([]byte, error) {
	m.each(blocks, func(b []byte, _, _, _ int) { poison(b) })
	return nil, nil
}

// Wait returns at once: a server on a CPU answers when it has copied.
func (m *HostMemory) Wait([]byte) error { return nil }

// Verify compares every byte.
func (m *HostMemory) Verify(blocks []int, c Content) ([]Mismatch, error) {
	var found []Mismatch
	m.each(blocks, func(b []byte, layer, plane, i int) {
		if len(found) == MaxMismatches {
			return
		}
		if m, differs := c.Compare(b, Mismatch{Layer: layer, Plane: plane, Position: c.First + i, Block: blocks[i]}, len(blocks)); differs {
			found = append(found, m)
		}
	})
	return found, nil
}

// Checksums are the MD5 sums of the chunks that blocks make up, as a server
// computes them of registered memory: of each chunk layer by layer, plane by
// plane, block by block; bfloat16 is widened to float32 before.
func (m *HostMemory) Checksums(blocks []int, perChunk int) []string {
	sums := make([]string, 0, len(blocks)/perChunk)
	for ; len(blocks) >= perChunk; blocks = blocks[perChunk:] {
		sum := md5.New()
		for _, l := range m.layers {
			for plane := range l.Planes {
				for _, id := range blocks[:perChunk] {
					digest(sum, l.block(plane, id), l.DType)
				}
			}
		}
		sums = append(sums, hex.EncodeToString(sum.Sum(nil)))
	}
	return sums
}

func digest(sum hash.Hash, b []byte, dtype string) {
	if dtype == "bfloat16" {
		wide := make([]byte, 2*len(b))
		for i := 0; i+1 < len(b); i += 2 {
			wide[2*i+2], wide[2*i+3] = b[i], b[i+1]
		}
		b = wide
	}
	_, _ = sum.Write(b) // a hash never fails
}

// Close unmaps the memory and removes what names are left.
func (m *HostMemory) Close() error {
	var errs []error
	for _, s := range m.segments {
		errs = append(errs, s.Close())
	}
	m.segments, m.layers = nil, nil
	return errors.Join(errs...)
}

var _ Memory = (*HostMemory)(nil)
