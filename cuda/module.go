package cuda

import (
	_ "embed"
	"errors"
	"runtime"
	"strings"
	"unsafe"
)

// kernels is the PTX text of kernel/kvsum.cu.
//
//go:embed kvsum.ptx
var kernels []byte

// Options of the JIT compiler (CUjit_option). A value is a slot as wide as a
// pointer that holds a pointer or a number.
const (
	jitInfoLog      = 3
	jitInfoLogSize  = 4
	jitErrorLog     = 5
	jitErrorLogSize = 6
	jitVerbose      = 12
)

// loadModule compiles PTX for the device. The log names registers and spills.
func (c *Context) loadModule(ptx []byte) (module uintptr, log string, err error) {
	image := append(append([]byte(nil), ptx...), 0) // the driver reads up to a NUL
	info, errs := make([]byte, 8192), make([]byte, 8192)

	// The driver writes through the addresses in values, which the garbage
	// collector does not see there.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&info[0])
	pin.Pin(&errs[0])
	options := []int32{jitInfoLog, jitInfoLogSize, jitErrorLog, jitErrorLogSize, jitVerbose}
	values := []uintptr{
		uintptr(unsafe.Pointer(&info[0])), uintptr(len(info)),
		uintptr(unsafe.Pointer(&errs[0])), uintptr(len(errs)), 1,
	}
	code := c.api.moduleLoad(&module, &image[0], uint32(len(options)), &options[0], &values[0])
	err = c.check("cuModuleLoadDataEx", code)
	var e *Error
	if errors.As(err, &e) {
		e.Log = firstString(errs)
	}
	return module, firstString(info), err
}

func firstString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return strings.TrimSpace(s)
}

func (c *Context) function(module uintptr, name string) (f uintptr, err error) {
	n := append([]byte(name), 0)
	err = c.check("cuModuleGetFunction", c.api.moduleFunction(&f, module, &n[0]))
	return f, err
}

// threadsPerBlock is NT of kernel/kvsum.cu.
const threadsPerBlock = 256

// A packedLaunch is the "extra" form of kernel parameters: one packed buffer,
// and so no array of pointers into Go memory. All parameters are 8 bytes wide.
type packedLaunch struct {
	extra  [5]uintptr
	size   uintptr
	params [8]uint64
}

// launch starts a kernel in a stream. The driver copies the parameters before it
// returns.
func (c *Context) launch(function uintptr, grid [3]uint32, s Stream, params ...uint64) error {
	const bufferPointer, bufferSize, end = 1, 2, 0 // CU_LAUNCH_PARAM_*
	p := &packedLaunch{size: uintptr(8 * len(params))}
	copy(p.params[:], params)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	p.extra = [5]uintptr{
		bufferPointer, uintptr(unsafe.Pointer(&p.params)),
		bufferSize, uintptr(unsafe.Pointer(&p.size)), end,
	}
	return c.check("cuLaunchKernel", c.api.launch(function, grid[0], grid[1], grid[2],
		threadsPerBlock, 1, 1, 0, s, nil, unsafe.Pointer(&p.extra)))
}
