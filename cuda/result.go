package cuda

import (
	"errors"
	"fmt"
)

// ErrNoDriver says that this host has no usable CUDA driver: no library, an old
// one that lacks a symbol, or no device behind it. It is a reason to skip.
var ErrNoDriver = errors.New("no CUDA driver")

// ErrClosed is the error of Do after Close.
var ErrClosed = errors.New("cuda: device is closed")

// A Result is a CUresult. It works with errors.Is:
//
//	errors.Is(err, cuda.OutOfMemory)
type Result int32

// The results that callers decide by; names and numbers are those of cuda.h.
const (
	InvalidValue          Result = 1
	OutOfMemory           Result = 2
	StubLibrary           Result = 34
	NoDevice              Result = 100
	InvalidDevice         Result = 101
	InvalidContext        Result = 201
	NoBinaryForGPU        Result = 209
	InvalidPTX            Result = 218
	JITCompilerNotFound   Result = 221
	UnsupportedPTXVersion Result = 222
	InvalidHandle         Result = 400
	NotFound              Result = 500
	NotReady              Result = 600
	IllegalAddress        Result = 700
	LaunchTimeout         Result = 702
	LaunchFailed          Result = 719
	NotSupported          Result = 801
	SystemDriverMismatch  Result = 803
	CompatNotSupported    Result = 804
)

func (r Result) Error() string { return fmt.Sprintf("CUresult %d", int32(r)) }

// Sticky says that the result is a fault after which every call in the process
// fails the same way: "the process must be terminated and relaunched" in cuda.h's
// words. Read in the header of CUDA 13.5, not observed on a device.
func (r Result) Sticky() bool {
	switch r {
	case 214, // uncorrectable ECC error
		IllegalAddress, LaunchTimeout, LaunchFailed,
		710, 714, 715, 716, 717, 718, 721: // assert, hardware stack, instruction, alignment, address space, pc, tensor memory
		return true
	}
	return false
}

// missing says that cuInit failed for want of a driver or a device.
func (r Result) missing() bool {
	return r == StubLibrary || r == NoDevice || r == SystemDriverMismatch || r == CompatNotSupported
}

// advice is what to do about a result whose own text does not say.
var advice = map[Result]string{
	StubLibrary:           "the toolkit's stub library was found first: take its directory off the library path",
	NoDevice:              "no GPU is visible: check CUDA_VISIBLE_DEVICES and the container's GPU request",
	NoBinaryForGPU:        "the GPU is older than sm_70",
	InvalidContext:        "a Context works only inside Do, on the device's thread",
	JITCompilerNotFound:   "the container lacks the driver capability \"compute\"",
	UnsupportedPTXVersion: "the driver is older than the PTX: regenerate it with go generate ./cuda",
	SystemDriverMismatch:  "the library and the kernel module differ in version: reboot or reinstall the driver",
}

// An Error is a driver call that did not succeed.
type Error struct {
	Call   string // the exported symbol, as cuMemAlloc_v2
	Result Result
	Name   string // as CUDA_ERROR_OUT_OF_MEMORY
	Text   string // the driver's sentence
	Log    string // of the JIT compiler, for a module that did not load
}

func (e *Error) Error() string {
	s := fmt.Sprintf("cuda: %s: %s (%d): %s", e.Call, e.Name, int32(e.Result), e.Text)
	if a := advice[e.Result]; a != "" {
		s += "; " + a
	}
	if e.Log != "" {
		s += "\n" + e.Log
	}
	return s
}

// Unwrap gives the Result.
func (e *Error) Unwrap() error { return e.Result }

// A DeadError is the answer of a device after a sticky fault; the driver is not
// called any more.
type DeadError struct {
	Ordinal int
	Fault   *Error // the call that reported it; the launch at fault may be an earlier one
}

func (e *DeadError) Error() string {
	return fmt.Sprintf("cuda: device %d is unusable in this process since a fault: %v", e.Ordinal, e.Fault)
}

// Unwrap gives the fault.
func (e *DeadError) Unwrap() error { return e.Fault }

// check turns a CUresult into an error.
func (d *Driver) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	e := &Error{Call: call, Result: Result(code), Name: "CUDA_ERROR", Text: "unknown to this driver"}
	var s *byte
	if d.api.errorName(code, &s) == 0 && s != nil {
		e.Name = text(s)
	}
	if s = nil; d.api.errorString(code, &s) == 0 && s != nil {
		e.Text = text(s)
	}
	return e
}
