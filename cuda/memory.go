package cuda

import (
	"fmt"
	"unsafe"
)

// Ptr is an address in device memory.
type Ptr uint64

// Alloc returns n bytes of device memory with undefined content. For memory that
// is exported to another process, n should be a multiple of 2 MiB: smaller
// allocations share a block, which an IPC handle exposes whole.
func (c *Context) Alloc(n uint64) (p Ptr, err error) {
	if err := c.check("cuMemAlloc_v2", c.api.memAlloc(&p, uintptr(n))); err != nil {
		return 0, fmt.Errorf("allocating %d bytes on device %d: %w", n, c.device.Info.Ordinal, err)
	}
	return p, nil
}

// Free releases memory from Alloc. It waits for the device.
func (c *Context) Free(p Ptr) error { return c.check("cuMemFree_v2", c.api.memFree(p)) }

// MemoryInfo is the free and the total memory of the device, in bytes.
func (c *Context) MemoryInfo() (free, total uint64, err error) {
	var f, t uintptr
	err = c.check("cuMemGetInfo_v2", c.api.memInfo(&f, &t))
	return uint64(f), uint64(t), err
}

// AddressRange is the allocation that p lies in.
func (c *Context) AddressRange(p Ptr) (base Ptr, size uint64, err error) {
	var n uintptr
	err = c.check("cuMemGetAddressRange_v2", c.api.memRange(&base, &n, p))
	return base, uint64(n), err
}

// Write copies b to the device and returns when it is there. It does not wait for
// streams made by NewStream: synchronise those that use the same memory first.
func (c *Context) Write(p Ptr, b []byte) error {
	err := c.check("cuMemcpyHtoD_v2", c.api.htod(p, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))))
	if err != nil {
		return err
	}
	return c.Sync(0) // the driver returns as soon as b is in a buffer of its own
}

// Read fills b from the device. It does not wait for streams made by NewStream.
func (c *Context) Read(b []byte, p Ptr) error {
	return c.check("cuMemcpyDtoH_v2", c.api.dtoh(unsafe.Pointer(unsafe.SliceData(b)), p, uintptr(len(b))))
}

// Copy copies n bytes within the device and returns when they are there.
func (c *Context) Copy(to, from Ptr, n uint64) error {
	if err := c.check("cuMemcpyDtoD_v2", c.api.dtod(to, from, uintptr(n))); err != nil {
		return err
	}
	return c.Sync(0)
}

// CopyAsync enqueues a copy of n bytes within the device.
func (c *Context) CopyAsync(to, from Ptr, n uint64, s Stream) error {
	return c.check("cuMemcpyDtoDAsync_v2", c.api.dtodAsync(to, from, uintptr(n), s))
}

// Set enqueues setting n bytes to value, as to poison a destination.
func (c *Context) Set(p Ptr, value byte, n uint64, s Stream) error {
	return c.check("cuMemsetD8Async", c.api.setAsync(p, value, uintptr(n), s))
}

// WriteAsync enqueues a copy of h.Bytes[from:from+n] to the device.
func (c *Context) WriteAsync(p Ptr, h *HostMemory, from, n int, s Stream) error {
	at := unsafe.Pointer(unsafe.SliceData(h.Bytes[from : from+n]))
	return c.check("cuMemcpyHtoDAsync_v2", c.api.htodAsync(p, at, uintptr(n), s))
}

// ReadAsync enqueues a copy from the device to h.Bytes[to:to+n].
func (c *Context) ReadAsync(h *HostMemory, to, n int, p Ptr, s Stream) error {
	at := unsafe.Pointer(unsafe.SliceData(h.Bytes[to : to+n]))
	return c.check("cuMemcpyDtoHAsync_v2", c.api.dtohAsync(at, p, uintptr(n), s))
}
