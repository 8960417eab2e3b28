package cuda

import "fmt"

// ExportMemory returns the handle of the allocation that p lies in, which another
// process can open, and where p is in it. The three values are the fields of
// LMCache's raw wrapper (_ipc_handle_reserved, _alloc_offset, and _nbytes for a
// tensor that reaches to the end of the allocation).
//
// The allocation must come from Alloc and must outlive the importer's mapping:
// free it only after the other process has closed it.
func (c *Context) ExportMemory(p Ptr) (h IPCHandle, offset, rest uint64, err error) {
	base, size, err := c.AddressRange(p)
	if err != nil {
		return h, 0, 0, fmt.Errorf("exporting device memory at %#x: %w", uint64(p), err)
	}
	offset = uint64(p - base)
	if err := c.check("cuIpcGetMemHandle", c.api.ipcGetMemory(&h, base)); err != nil {
		return h, 0, 0, fmt.Errorf("exporting device memory at %#x: %w", uint64(base), err)
	}
	return h, offset, size - offset, nil
}

// OpenMemory maps another process's allocation. The handle cannot be opened in
// the process that exported it. Every open needs its own CloseMemory.
func (c *Context) OpenMemory(h IPCHandle) (base Ptr, err error) {
	const lazyPeerAccess = 1 // the only flag there is, and it is required
	if err := c.check("cuIpcOpenMemHandle_v2", c.api.ipcOpenMemory(&base, h, lazyPeerAccess)); err != nil {
		return 0, fmt.Errorf("opening another process's memory: %w", err)
	}
	return base, nil
}

// CloseMemory unmaps memory from OpenMemory.
func (c *Context) CloseMemory(base Ptr) error {
	return c.check("cuIpcCloseMemHandle", c.api.ipcCloseMemory(base))
}

// ExportEvent returns the handle of an event from NewSharedEvent.
func (c *Context) ExportEvent(e Event) (h IPCHandle, err error) {
	if err := c.check("cuIpcGetEventHandle", c.api.ipcGetEvent(&h, e)); err != nil {
		return h, fmt.Errorf("exporting an event: %w", err)
	}
	return h, nil
}

// OpenEvent opens another process's event, such as the one that a cache server
// records behind its copies. Wait on it before reading what they wrote: the
// server's reply says that they were enqueued, not that they are done. End it
// with DestroyEvent.
func (c *Context) OpenEvent(h IPCHandle) (e Event, err error) {
	if err := c.check("cuIpcOpenEventHandle", c.api.ipcOpenEvent(&e, h)); err != nil {
		return 0, fmt.Errorf("opening another process's event: %w", err)
	}
	return e, nil
}
