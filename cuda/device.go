package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// A Device owns one OS thread on which the primary context of the device is
// current, and the compiled kernels. The primary context is the one that torch,
// vLLM and LMCache use too. A Device may be used from any goroutine.
type Device struct {
	Info   Info
	JITLog string // what the driver's compiler said about the kernels

	context Context
	work    chan func()
	closing chan struct{} // closed by Close
	stopped chan struct{} // closed when the thread is gone
	once    sync.Once
	fault   atomic.Pointer[Error]
	err     error // of the thread's teardown; read after stopped
}

// A Context is a device as seen from its own thread. It is valid only inside the
// function that Do calls; elsewhere the driver answers InvalidContext.
type Context struct {
	driver         *Driver
	api            *symbols
	device         *Device
	handle, module uintptr
	kvsum, kvfill  uintptr
}

// Open retains the primary context of a device and compiles the kernels for it.
// The goroutine that it starts ends with Close.
func (d *Driver) Open(ordinal int) (*Device, error) {
	info, err := d.Info(ordinal)
	if err != nil {
		return nil, err
	}
	v := &Device{
		Info: info,
		work: make(chan func()), closing: make(chan struct{}), stopped: make(chan struct{}),
	}
	v.context = Context{driver: d, api: &d.api, device: v}
	opened := make(chan error)
	go v.thread(opened)
	if err := <-opened; err != nil {
		<-v.stopped
		return nil, fmt.Errorf("opening device %d: %w", ordinal, errors.Join(err, v.err))
	}
	return v, nil
}

// thread is the device's thread. It is locked and never unlocked, so that the OS
// thread ends with the goroutine and nobody inherits its current context.
func (v *Device) thread(opened chan<- error) {
	runtime.LockOSThread()
	defer close(v.stopped)
	var undo cleanup
	defer func() { undo.run(&v.err) }()
	err := v.context.setUp(&undo)
	opened <- err
	if err != nil {
		return
	}
	for {
		select {
		case f := <-v.work:
			f()
		case <-v.closing:
			return
		}
	}
}

// setUp makes the context current and loads the kernels; undo takes back what
// has been done when it fails as well as at Close.
func (c *Context) setUp(undo *cleanup) error {
	device := int32(c.device.Info.Ordinal)
	if err := c.check("cuDeviceGet", c.api.deviceGet(&device, device)); err != nil {
		return err
	}
	if err := c.check("cuDevicePrimaryCtxRetain", c.api.contextRetain(&c.handle, device)); err != nil {
		return err
	}
	undo.add(func() error {
		return c.check("cuDevicePrimaryCtxRelease_v2", c.api.contextRelease(device))
	})
	if err := c.check("cuCtxSetCurrent", c.api.contextSet(c.handle)); err != nil {
		return err
	}
	undo.add(func() error { return c.check("cuCtxSetCurrent", c.api.contextSet(0)) })
	var err error
	if c.module, c.device.JITLog, err = c.loadModule(kernels); err != nil {
		return err
	}
	undo.add(func() error { return c.check("cuModuleUnload", c.api.moduleUnload(c.module)) })
	if c.kvsum, err = c.function(c.module, "kvsum"); err != nil {
		return err
	}
	c.kvfill, err = c.function(c.module, "kvfill")
	return err
}

// check also notes a fault that makes the device unusable.
func (c *Context) check(call string, code int32) error {
	err := c.driver.check(call, code)
	var e *Error
	if errors.As(err, &e) && e.Result.Sticky() {
		c.device.fault.CompareAndSwap(nil, e)
	}
	return err
}

// Do runs f on the device's thread and returns its error. After a sticky fault it
// returns a DeadError without calling f, after Close ErrClosed. A panic of f
// comes out of Do. f must not end its goroutine (t.FailNow does) and must not
// call Do of the same device, which would wait for itself.
func (v *Device) Do(f func(*Context) error) error {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	job := func() {
		out := outcome{err: errors.New("cuda: the function passed to Do ended its goroutine")}
		returned := false
		defer func() {
			if !returned {
				out.panicked = recover()
			}
			done <- out
		}()
		if fault := v.fault.Load(); fault != nil {
			out.err = &DeadError{Ordinal: v.Info.Ordinal, Fault: fault}
		} else {
			out.err = f(&v.context)
		}
		returned = true
	}
	select {
	case <-v.closing:
		return ErrClosed
	case <-v.stopped:
		return ErrClosed
	case v.work <- job:
	}
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	return out.err
}

// Dead is the fault that made the device unusable, or nil.
func (v *Device) Dead() *Error { return v.fault.Load() }

// Close unloads the kernels, releases the context and ends the thread. Only the
// first call does and reports anything. What was allocated must have been freed.
func (v *Device) Close() error {
	var err error
	v.once.Do(func() {
		close(v.closing)
		<-v.stopped
		if v.Dead() == nil { // a dead context answers everything with its fault
			err = v.err
		}
	})
	return err
}
