package lmcache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
)

// poolPrefix begins the name of the pool of a server that was told a name.
const poolPrefix = "lmcache_l1_pool_"

// memory is the bytes of L1, given out in aligned pieces. Its owner locks.
type memory struct {
	bytes   []byte
	align   int
	free    []span       // by offset, never touching
	segment *shm.Segment // nil: the memory is private
	unmap   func() error // private memory
	name    string       // without a slash; empty: private
}

type span struct{ from, to int }

// newMemory makes the pool, in shared memory unless the config says otherwise.
func newMemory(c Config) (*memory, error) {
	size := int(c.L1Bytes + c.Staging)
	m := &memory{align: c.Align, free: []span{{0, size}}}
	if c.NoShm {
		var err error
		if m.bytes, m.unmap, err = private(size); err != nil {
			return nil, fmt.Errorf("making the memory of L1: %w", err)
		}
		return m, nil
	}
	m.name = shm.Prefix + "l1_" + rand.Text()
	if c.ShmName != "" {
		m.name = poolPrefix + c.ShmName
	}
	if _, err := shm.Sweep(); err != nil && !errors.Is(err, shm.ErrUnsupported) {
		return nil, err
	}
	var err error
	if m.segment, err = shm.CreateNamed("/"+m.name, size); err != nil {
		return nil, fmt.Errorf("making the pool of L1: %w", err)
	}
	m.bytes = m.segment.Bytes()
	return m, nil
}

// take returns a piece of that many bytes: the first that fits.
func (m *memory) take(size int) (place, bool) {
	pitch := (size + m.align - 1) / m.align * m.align
	for i, s := range m.free {
		if s.to-s.from < size {
			continue
		}
		end := min(s.from+pitch, s.to)
		if end == s.to {
			m.free = slices.Delete(m.free, i, i+1)
		} else {
			m.free[i].from = end
		}
		return place{m.bytes[s.from : s.from+size : s.from+size], s.from, end}, true
	}
	return place{}, false
}

// A place is a piece of memory that somebody has.
type place struct {
	data     []byte
	from, to int
}

// give takes a piece back.
func (m *memory) give(p place) {
	i, _ := slices.BinarySearchFunc(m.free, p.from, func(s span, from int) int { return s.from - from })
	m.free = slices.Insert(m.free, i, span{p.from, p.to})
	if i+1 < len(m.free) && m.free[i].to == m.free[i+1].from {
		m.free[i].to = m.free[i+1].to
		m.free = slices.Delete(m.free, i+1, i+2)
	}
	if i > 0 && m.free[i-1].to == m.free[i].from {
		m.free[i-1].to = m.free[i].to
		m.free = slices.Delete(m.free, i, i+1)
	}
}

func (m *memory) close() error {
	if m.segment == nil {
		return m.unmap()
	}
	return m.segment.Close()
}
