package standin

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/kvproof/kvproof/cuda/internal/ptxrun"
)

// The sources are embedded, so that a test binary carries them along.
//
//go:embed source
var source embed.FS

// ErrNoCompiler says that the stand-in cannot be built on this machine.
var ErrNoCompiler = errors.New("no C compiler (cc), which builds the stand-in for the CUDA driver: apt-get install gcc")

// Build compiles the library into a directory and returns its path.
func Build(dir string) (library string, err error) {
	if _, err := exec.LookPath("cc"); err != nil {
		return "", ErrNoCompiler
	}
	entries, err := source.ReadDir("source")
	if err != nil {
		return "", err
	}
	library = filepath.Join(dir, "libcuda.so.1")
	args := []string{"-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library}
	for _, e := range entries {
		text, err := source.ReadFile("source/" + e.Name())
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, e.Name())
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
		if filepath.Ext(path) == ".c" {
			args = append(args, path)
		}
	}
	if out, err := exec.Command("cc", append(args, "-lpthread")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the stand-in for the driver: %w\n%s", err, out)
	}
	return library, nil
}

// A Driver is a built stand-in in this process: what tests see and steer beside
// the driver's own functions.
type Driver struct {
	Library string

	Calls  func(name string) int32             // how often a function was called
	Live   func(kind int32) int32              // objects of one of Kinds that were made and not released
	Fail   func(name string, skip, code int32) // after skip calls, one call answers with the code
	Revive func()                              // forget injected failures and faults
	Forget func()                              // forget everything, as the end of a process does

	launchError error
	kernels     map[string]map[string]*ptxrun.Kernel
}

// Kinds are the kinds of objects that Live counts, by their number.
var Kinds = []string{"device memory", "opened memory", "pinned", "registered", "streams", "events", "modules", "contexts"}

// Connect loads a built stand-in and gives it the executor of PTX. A process does
// so once for each library: what connects it is never given back.
func Connect(library string) (*Driver, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	d := &Driver{Library: library, kernels: map[string]map[string]*ptxrun.Kernel{}}
	var setLauncher func(uintptr)
	var regions func(out *uint64, n int32) int32
	purego.RegisterLibFunc(&d.Calls, handle, "standin_calls")
	purego.RegisterLibFunc(&d.Live, handle, "standin_live")
	purego.RegisterLibFunc(&d.Fail, handle, "standin_fail")
	purego.RegisterLibFunc(&d.Revive, handle, "standin_revive")
	purego.RegisterLibFunc(&d.Forget, handle, "standin_forget")
	purego.RegisterLibFunc(&setLauncher, handle, "standin_set_launcher")
	purego.RegisterLibFunc(&regions, handle, "standin_regions")
	setLauncher(purego.NewCallback(func(ptx, name *byte, dims *[6]uint32, params *byte, size uintptr) uintptr {
		kernel, code := d.kernel(text(ptx), text(name))
		if kernel == nil {
			return code
		}
		var table [2 * 4096]uint64
		var memory ptxrun.Memory
		for i := range regions(&table[0], 4096) {
			memory = append(memory, ptxrun.Region{Addr: table[2*i], Bytes: bytesAt(table[2*i], table[2*i+1])})
		}
		_, err := kernel.Run(ptxrun.Launch{
			Grid:   ptxrun.Dim{X: dims[0], Y: dims[1], Z: dims[2]},
			Block:  ptxrun.Dim{X: dims[3], Y: dims[4], Z: dims[5]},
			Params: unsafe.Slice(params, size), Memory: memory,
		})
		if err != nil {
			d.launchError = err
			return illegalAddress
		}
		return 0
	}))
	return d, nil
}

// Codes that a launch may end with.
const (
	invalidPTX     = 218
	notFound       = 500
	illegalAddress = 700
)

// kernel finds a kernel of a text, which is parsed once; the stand-in's lock is
// held.
func (d *Driver) kernel(ptx, name string) (*ptxrun.Kernel, uintptr) {
	if d.kernels[ptx] == nil {
		kernels, err := ptxrun.Parse(ptx)
		if err != nil {
			d.launchError = err
			return nil, invalidPTX
		}
		d.kernels[ptx] = kernels
	}
	return d.kernels[ptx][name], notFound
}

// LaunchError is why the executor refused a kernel last. It must not be asked
// for while kernels run.
func (d *Driver) LaunchError() error { return d.launchError }

// Left says what was made and not released; empty: nothing.
func (d *Driver) Left() string {
	for i, kind := range Kinds {
		if n := d.Live(int32(i)); n != 0 {
			return fmt.Sprintf("%d %s left behind", n, kind)
		}
	}
	return ""
}

// text is a C string.
func text(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// bytesAt is host memory at an address that came from C.
func bytesAt(address, n uint64) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}
