package cuda

import (
	"errors"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/standin"
)

func TestWithoutADriver(t *testing.T) {
	_, err := LoadLibrary("libkvproof-not-here.so.1")
	require.ErrorIs(t, err, ErrNoDriver)
	require.ErrorContains(t, err, "libkvproof-not-here.so.1")

	_, err = LoadLibrary("libc.so.6") // a library, but none of a driver
	require.ErrorIs(t, err, ErrNoDriver)
	require.ErrorContains(t, err, "the library has no cuInit")
}

func TestFailedStart(t *testing.T) {
	s := useStandIn(t)
	for _, c := range []struct {
		code     Result
		noDriver bool
		want     string
	}{
		{StubLibrary, true, "stub library was found first"},
		{NoDevice, true, "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected; no GPU is visible"},
		{SystemDriverMismatch, true, "differ in version"},
		{CompatNotSupported, true, "cuInit"},
		{999, false, "cuda: cuInit: CUDA_ERROR (999): unknown to this driver"},
	} {
		t.Run(c.code.Error(), func(t *testing.T) {
			s.Fail("cuInit", 0, int32(c.code))
			_, err := LoadLibrary(s.Library)
			require.ErrorIs(t, err, c.code)
			require.Equal(t, c.noDriver, errors.Is(err, ErrNoDriver), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestInfo(t *testing.T) {
	d := useStandIn(t).driver
	require.Equal(t, "13.5", d.Version())
	n, err := d.Count()
	require.NoError(t, err)
	require.Equal(t, 2, n)

	info, err := d.Info(1)
	require.NoError(t, err)
	require.Equal(t, Info{
		Ordinal: 1, Name: "stand-in 1", PCIAddress: "0000:1B:00.0", Memory: 1 << 30,
		UUID:  UUID{0x01, 0x12, 0x23, 0x34, 0x45, 0x56, 0x67, 0x78, 0x89, 0x9a, 0xab, 0xbc, 0xcd, 0xde, 0xef, 0x00},
		Major: 9, Multiprocessors: 4, ClockKHz: 1755000, MemoryClockKHz: 3201000, MemoryBusBits: 5120,
		L2Bytes: 1 << 20, CopyEngines: 2, IPCEvents: true,
	}, info)

	for _, form := range []string{
		"01122334-4556-6778-899a-abbccddeef00", "GPU-01122334-4556-6778-899a-abbccddeef00",
		"MIG-01122334-4556-6778-899A-ABBCCDDEEF00",
	} {
		ordinal, err := d.Find(form)
		require.NoError(t, err)
		require.Equal(t, 1, ordinal, form)
	}
	_, err = d.Find("GPU-0")
	require.ErrorContains(t, err, "finding device GPU-0: visible are 00112233-")

	_, err = d.Info(7)
	require.ErrorIs(t, err, InvalidDevice)
	_, err = d.Open(7)
	require.ErrorContains(t, err, "finding device 7")
}

func TestErrorNamesCallResultAndText(t *testing.T) {
	_, v := openStandIn(t)
	err := v.Do(func(c *Context) error { _, err := c.Alloc(0); return err })
	require.EqualError(t, err, "allocating 0 bytes on device 0: cuda: cuMemAlloc_v2: CUDA_ERROR_INVALID_VALUE (1): invalid argument")
	require.ErrorIs(t, err, InvalidValue)
	require.NotErrorIs(t, err, OutOfMemory)
	require.Nil(t, v.Dead(), "an ordinary error is no fault")
}

func TestModuleErrorHasTheCompilersLog(t *testing.T) {
	s, v := openStandIn(t)
	require.Contains(t, v.JITLog, "ptxas info")
	err := v.Do(func(c *Context) error {
		_, _, err := c.loadModule([]byte(".version 6.0\n.junk"))
		return err
	})
	require.ErrorIs(t, err, InvalidPTX)
	require.ErrorContains(t, err, "\nptxas fatal   : Ptx assembly aborted due to errors")

	s.Fail("cuModuleLoadDataEx", 0, int32(UnsupportedPTXVersion))
	_, err = s.driver.Open(0)
	require.ErrorContains(t, err, "opening device 0: cuda: cuModuleLoadDataEx: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)")
	require.ErrorContains(t, err, "go generate ./cuda")
}

func TestFailedOpenLeavesNothing(t *testing.T) {
	s := useStandIn(t)
	for _, call := range []string{
		"cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId", "cuDeviceTotalMem_v2",
		"cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadDataEx", "cuModuleGetFunction",
	} {
		t.Run(call, func(t *testing.T) {
			s.Fail(call, 0, int32(OutOfMemory))
			_, err := s.driver.Open(0)
			require.ErrorIs(t, err, OutOfMemory)
			require.ErrorContains(t, err, call)
			for i, kind := range standin.Kinds {
				require.Zero(t, s.Live(int32(i)), kind)
			}
		})
	}
	t.Run("second kernel", func(t *testing.T) {
		s.Fail("cuModuleGetFunction", 1, int32(NotFound))
		_, err := s.driver.Open(0)
		require.ErrorIs(t, err, NotFound)
	})
}

func TestCloseReportsWhatFails(t *testing.T) {
	s := useStandIn(t)
	v, err := s.driver.Open(0)
	require.NoError(t, err)
	s.Fail("cuCtxSetCurrent", 0, int32(InvalidContext))
	require.ErrorIs(t, v.Close(), InvalidContext)
	require.NoError(t, v.Close(), "only the first call reports")
}

func TestContextWorksOnlyOnItsThread(t *testing.T) {
	_, v := openStandIn(t)
	var stolen *Context
	do(t, v, func(c *Context) error { stolen = c; return nil })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := stolen.Alloc(16)
	require.ErrorIs(t, err, InvalidContext)
	require.ErrorContains(t, err, "a Context works only inside Do")
}

func TestDoAfterClose(t *testing.T) {
	s := useStandIn(t)
	v, err := s.driver.Open(0)
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.Do(func(*Context) error { t.Error("called after Close"); return nil }), ErrClosed)
}

func TestDoPassesPanicsOn(t *testing.T) {
	_, v := openStandIn(t)
	require.PanicsWithValue(t, "as planned", func() {
		_ = v.Do(func(*Context) error { panic("as planned") })
	})
	do(t, v, func(c *Context) error { _, _, err := c.MemoryInfo(); return err })
}

func TestDoSurvivesTheEndOfItsGoroutine(t *testing.T) {
	s := useStandIn(t)
	v, err := s.driver.Open(0)
	require.NoError(t, err)
	err = v.Do(func(*Context) error { runtime.Goexit(); return nil })
	require.ErrorContains(t, err, "ended its goroutine")
	require.ErrorIs(t, v.Do(func(*Context) error { return nil }), ErrClosed)
	require.NoError(t, v.Close())
}

func TestDevicesAreUsedFromManyGoroutines(t *testing.T) {
	s := useStandIn(t)
	v, err := s.driver.Open(0)
	require.NoError(t, err)
	w, err := s.driver.Open(1)
	require.NoError(t, err)
	var workers sync.WaitGroup
	for i := range 8 {
		device := []*Device{v, w}[i%2]
		workers.Go(func() {
			for range 50 {
				err := device.Do(func(c *Context) error {
					p, err := c.Alloc(64)
					if err != nil {
						return err
					}
					return errors.Join(c.Set(p, 1, 64, 0), c.Free(p))
				})
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	require.NoError(t, w.Close()) // while the others work
	workers.Wait()
	require.NoError(t, v.Close())
}

func TestFaultMarksTheDeviceDead(t *testing.T) {
	s := useStandIn(t)
	v, err := s.driver.Open(0)
	require.NoError(t, err)
	fault := func(c *Context) (err error) {
		p, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.Free(p) })
		g, err := c.NewDigester(Pool{Planes: []Ptr{p}, Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return g.Close(c) })
		return errors.Join(g.write(c, []uint32{1 << 20}), // what load would refuse
			g.launchSum(c, 1), c.Sync(g.Stream))
	}
	err = v.Do(fault)
	require.ErrorIs(t, err, IllegalAddress)
	require.ErrorContains(t, s.LaunchError(), "illegal global address")
	require.Equal(t, "cuStreamSynchronize", v.Dead().Call)

	before := s.Calls("cuMemAlloc_v2")
	err = v.Do(fault)
	var dead *DeadError
	require.ErrorAs(t, err, &dead)
	require.ErrorIs(t, err, IllegalAddress)
	require.ErrorContains(t, err, "device 0 is unusable in this process since a fault: cuda: cuStreamSynchronize")
	require.Equal(t, before, s.Calls("cuMemAlloc_v2"), "a dead device is not called")
	require.NoError(t, v.Close())

	s.Forget() // what the dead context held goes with the process
}

func TestStickyResults(t *testing.T) {
	for _, r := range []Result{214, IllegalAddress, LaunchTimeout, 710, 714, 715, 716, 717, 718, LaunchFailed, 721} {
		require.True(t, r.Sticky(), r.Error())
	}
	for _, r := range []Result{InvalidValue, OutOfMemory, InvalidContext, NotReady, 701, 720, NotSupported} {
		require.False(t, r.Sticky(), r.Error())
	}
}

func TestSymbolsAreTheVersionedOnes(t *testing.T) {
	s := useStandIn(t)
	fields := reflect.TypeFor[symbols]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("cu"), ",")
		require.Regexp(t, `^cu[A-Z]\w+$`, name)
		// Names that cuda.h maps to a newer one, and whose plain form still resolves.
		require.NotContains(t, []string{
			"cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemGetAddressRange", "cuMemHostRegister", "cuMemcpyHtoD",
			"cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
			"cuDeviceTotalMem", "cuDeviceGetUuid", "cuDevicePrimaryCtxRelease", "cuStreamDestroy", "cuEventDestroy",
			"cuIpcOpenMemHandle", "cuStreamWaitValue32", "cuMemHostGetDevicePointer",
		}, name)
	}
	require.NotNil(t, s.driver.api.streamValue)
}
