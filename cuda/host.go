package cuda

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// HostKind says how host memory is known to the driver.
type HostKind int

const (
	Pinned     HostKind = iota // page-locked by the driver: copied by the device alone
	Pageable                   // plain memory: the driver copies it through a buffer of its own
	Registered                 // shared memory in /dev/shm, page-locked afterwards, as LMCache's pool
)

func (k HostKind) String() string { return [...]string{"pinned", "pageable", "registered"}[k] }

// HostMemory is host memory that asynchronous copies may use. It is never Go
// memory: a copy outlives the call that enqueues it, and Go would not know.
type HostMemory struct {
	Bytes []byte
	Kind  HostKind
}

// Flags of cuMemHostAlloc and cuMemHostRegister.
const (
	hostPortable = 1
	hostMapped   = 2
)

// AllocHost returns n bytes of host memory.
func (c *Context) AllocHost(kind HostKind, n int) (*HostMemory, error) {
	h := &HostMemory{Kind: kind}
	var err error
	switch kind {
	case Pinned:
		var p unsafe.Pointer
		if err = c.check("cuMemHostAlloc", c.api.hostAlloc(&p, uintptr(n), hostPortable|hostMapped)); err == nil {
			h.Bytes = unsafe.Slice((*byte)(p), n)
		}
	case Pageable:
		h.Bytes, err = syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	case Registered:
		if h.Bytes, err = mapShared(n); err != nil {
			break
		}
		code := c.api.hostRegister(unsafe.Pointer(&h.Bytes[0]), uintptr(n), hostPortable|hostMapped)
		if err = c.check("cuMemHostRegister_v2", code); err != nil {
			err = errors.Join(err, syscall.Munmap(h.Bytes))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes of %s host memory: %w", n, kind, err)
	}
	return h, nil
}

// FreeHost releases memory from AllocHost. It waits for copies that use it.
func (c *Context) FreeHost(h *HostMemory) error {
	b := h.Bytes
	h.Bytes = nil
	switch h.Kind {
	case Pinned:
		return c.check("cuMemFreeHost", c.api.hostFree(unsafe.Pointer(&b[0])))
	case Registered:
		err := c.check("cuMemHostUnregister", c.api.hostUnregister(unsafe.Pointer(&b[0])))
		return errors.Join(err, syscall.Munmap(b))
	default:
		return syscall.Munmap(b)
	}
}

// mapShared maps n bytes of a file in /dev/shm that is gone when the mapping is.
func mapShared(n int) ([]byte, error) {
	f, err := os.CreateTemp("/dev/shm", "kvproof-*")
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	if err := reserve(f, n); err != nil {
		return nil, fmt.Errorf("reserving %d bytes in /dev/shm: %w", n, err)
	}
	return syscall.Mmap(int(f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// devicePointer is the address under which the device sees pinned memory.
func (c *Context) devicePointer(h *HostMemory) (p Ptr, err error) {
	code := c.api.hostPointer(&p, unsafe.Pointer(&h.Bytes[0]), 0)
	return p, c.check("cuMemHostGetDevicePointer_v2", code)
}
