package cuda

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/internal/ptxrun"
)

var mustNotSkip = flag.Bool("require", os.Getenv("KVPROOF_REQUIRE") != "", "fail where a test would skip for want of a driver or a tool")

// missing skips a test for want of something, or fails it under -require.
func missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if *mustNotSkip {
		tb.Fatalf("required, but "+format, args...)
	}
	tb.Skipf(format, args...)
}

// The sources are embedded, so that a test binary carries them along.
//
//go:embed testdata/standin
var standInSource embed.FS

// A standIn is the driver library of testdata/standin, and what tests see and
// steer beside the driver's own functions.
type standIn struct {
	library string
	driver  *Driver

	calls  func(name string) int32
	live   func(kind int32) int32
	fail   func(name string, skip, code int32)
	revive func() // forget injected failures and faults
	forget func() // forget everything, as the end of a process does
}

// Kinds of objects that live counts; the order is that of the C enum.
var kinds = []string{"device memory", "opened memory", "pinned", "registered", "streams", "events", "modules", "contexts"}

var buildStandIn = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kvproof-standin-")
	if err != nil {
		return "", err
	}
	removeAtExit = append(removeAtExit, dir)
	const under = "testdata/standin"
	entries, err := standInSource.ReadDir(under)
	if err != nil {
		return "", err
	}
	library := filepath.Join(dir, DriverLibrary)
	args := []string{"-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library}
	for _, e := range entries {
		text, err := standInSource.ReadFile(under + "/" + e.Name())
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
})

var removeAtExit []string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role))
	}
	code := m.Run()
	for _, dir := range removeAtExit {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

var loadStandIn = sync.OnceValues(func() (*standIn, error) {
	library, err := buildStandIn()
	if err != nil {
		return nil, err
	}
	return connectStandIn(library)
})

// connectStandIn loads a built stand-in and gives it the executor of PTX.
func connectStandIn(library string) (*standIn, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	s := &standIn{library: library}
	var setLauncher func(uintptr)
	var regions func(out *uint64, n int32) int32
	purego.RegisterLibFunc(&s.calls, handle, "standin_calls")
	purego.RegisterLibFunc(&s.live, handle, "standin_live")
	purego.RegisterLibFunc(&s.fail, handle, "standin_fail")
	purego.RegisterLibFunc(&s.revive, handle, "standin_revive")
	purego.RegisterLibFunc(&s.forget, handle, "standin_forget")
	purego.RegisterLibFunc(&setLauncher, handle, "standin_set_launcher")
	purego.RegisterLibFunc(&regions, handle, "standin_regions")
	parsed := map[string]map[string]*ptxrun.Kernel{}
	setLauncher(purego.NewCallback(func(ptx, name *byte, dims *[6]uint32, params *byte, size uintptr) uintptr {
		source := text(ptx)
		if parsed[source] == nil {
			kernels, err := ptxrun.Parse(source)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return uintptr(InvalidPTX)
			}
			parsed[source] = kernels
		}
		kernel := parsed[source][text(name)]
		if kernel == nil {
			return uintptr(NotFound)
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
			lastLaunchError = err
			return uintptr(IllegalAddress)
		}
		return 0
	}))
	s.driver, err = LoadLibrary(library)
	return s, err
}

// lastLaunchError is why the executor refused; written and read on the device's
// thread only.
var lastLaunchError error

// bytesAt is host memory at an address that came from C.
func bytesAt(address, n uint64) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

// useStandIn loads the stand-in and checks at the end of the test that nothing
// was left behind.
func useStandIn(tb testing.TB) *standIn {
	tb.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		missing(tb, "no C compiler (cc), which builds the stand-in for the CUDA driver: apt-get install gcc")
	}
	s, err := loadStandIn()
	require.NoError(tb, err)
	tb.Cleanup(func() {
		s.revive()
		for i, kind := range kinds {
			require.Zero(tb, s.live(int32(i)), "%s left behind", kind)
		}
	})
	return s
}

// openStandIn opens device 0 of the stand-in for the length of a test.
func openStandIn(tb testing.TB) (*standIn, *Device) {
	tb.Helper()
	s := useStandIn(tb)
	return s, openDevice(tb, s.driver)
}

func openDevice(tb testing.TB, d *Driver) *Device {
	tb.Helper()
	v, err := d.Open(0)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, v.Close()) })
	return v
}

// do runs f on the device and fails the test with its error; f must not use
// require, which would end the device's thread.
func do(tb testing.TB, v *Device, f func(*Context) error) {
	tb.Helper()
	require.NoError(tb, v.Do(f))
}

// leave makes a cleanup whose errors join the function's own.
func leave(err *error, f func() error) { *err = errors.Join(*err, f()) }

func errorContains(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}
