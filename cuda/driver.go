package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"
)

// DriverLibrary is the name of NVIDIA's driver library on Linux.
const DriverLibrary = "libcuda.so.1"

// A Driver is a loaded driver library. It may be used from any goroutine.
type Driver struct {
	api     symbols
	version int
}

// Load loads and starts the driver library of this host. The error is
// ErrNoDriver where there is none that works.
func Load() (*Driver, error) { return LoadLibrary(DriverLibrary) }

// LoadLibrary is Load with another name or path of the library.
func LoadLibrary(name string) (*Driver, error) {
	runtime.LockOSThread() // the linker keeps the reason of a failure for the thread that asked
	library, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	runtime.UnlockOSThread()
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoDriver, err)
	}
	d := &Driver{}
	if err := d.api.bind(library); err != nil {
		return nil, fmt.Errorf("loading %s: %w", name, err)
	}
	if err := d.check("cuInit", d.api.init(0)); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Result.missing() {
			return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
		}
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	var v int32
	if err := d.check("cuDriverGetVersion", d.api.driverVersion(&v)); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	d.version = int(v)
	return d, nil
}

// Version is the newest CUDA version that the driver supports, as "13.5".
func (d *Driver) Version() string {
	return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10)
}

// Count is the number of visible devices.
func (d *Driver) Count() (int, error) {
	var n int32
	err := d.check("cuDeviceGetCount", d.api.deviceCount(&n))
	return int(n), err
}
