package cuda

import "time"

// Stream is a queue of work on the device. The zero Stream is the default one,
// which does not wait for those that NewStream makes.
type Stream uintptr

// Event is a point in a stream.
type Event uintptr

// NewStream makes a non-blocking stream. DestroyStream ends it.
func (c *Context) NewStream() (s Stream, err error) {
	const nonBlocking = 1
	err = c.check("cuStreamCreate", c.api.streamCreate(&s, nonBlocking))
	return s, err
}

// DestroyStream releases a stream when its work is done.
func (c *Context) DestroyStream(s Stream) error {
	return c.check("cuStreamDestroy_v2", c.api.streamDestroy(s))
}

// Sync waits for all work of a stream. Faults of kernels show here.
func (c *Context) Sync(s Stream) error {
	return c.check("cuStreamSynchronize", c.api.streamSync(s))
}

// SyncAll waits for all work of the context.
func (c *Context) SyncAll() error { return c.check("cuCtxSynchronize", c.api.contextSync()) }

// Wait makes later work of a stream wait for the last record of an event, here
// or in another process. It does not wait itself.
func (c *Context) Wait(s Stream, e Event) error {
	return c.check("cuStreamWaitEvent", c.api.streamWait(s, e, 0))
}

// NewEvent makes an event that measures time. DestroyEvent releases it.
func (c *Context) NewEvent() (e Event, err error) {
	err = c.check("cuEventCreate", c.api.eventCreate(&e, 0))
	return e, err
}

// NewSharedEvent makes an event without timing whose handle another process can
// open.
func (c *Context) NewSharedEvent() (e Event, err error) {
	const disableTiming, interprocess = 2, 4
	err = c.check("cuEventCreate", c.api.eventCreate(&e, disableTiming|interprocess))
	return e, err
}

// DestroyEvent releases an event.
func (c *Context) DestroyEvent(e Event) error {
	return c.check("cuEventDestroy_v2", c.api.eventDestroy(e))
}

// Record puts an event after the work that is in a stream.
func (c *Context) Record(e Event, s Stream) error {
	return c.check("cuEventRecord", c.api.eventRecord(e, s))
}

// SyncEvent waits until the last record of an event is reached.
func (c *Context) SyncEvent(e Event) error {
	return c.check("cuEventSynchronize", c.api.eventSync(e))
}

// Elapsed is the time on the device between two events that were reached. The
// driver counts in floating-point milliseconds, to about half a microsecond.
func (c *Context) Elapsed(from, to Event) (time.Duration, error) {
	var ms float32
	err := c.check("cuEventElapsedTime", c.api.eventElapsed(&ms, from, to))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}
