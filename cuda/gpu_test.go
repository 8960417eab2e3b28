//go:build gpu

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// The tests of this file need a device and its driver, and nothing else: neither
// a toolkit nor a compiler. Without a driver each skips in one sentence; -require
// makes that a failure.

const gpuLibrary = "driver:" + DriverLibrary

func TestGPUCompilesTheKernels(t *testing.T) {
	v := openGPU(t)
	t.Logf("%s, sm_%d%d, %s, NUMA node %d", v.Info.Name, v.Info.Major, v.Info.Minor, v.Info.PCIAddress, v.Info.NUMANode)
	t.Log(v.JITLog)
	require.NotContains(t, v.JITLog, "warning")
}

func TestGPUKernelsAgreeWithTheReference(t *testing.T) {
	checkAgreement(t, openGPU(t), 1000)
}

func TestGPUKernelsAgreeOnLargeMemory(t *testing.T) {
	do(t, openGPU(t), func(c *Context) error {
		r := rand.New(rand.NewPCG(7, 8))
		return errors.Join(
			agree(c, r, shape{planes: 64, physical: 2100, blocks: 2048, unit: 8192}), // 1 GiB
			agree(c, r, shape{planes: 61, physical: 130, blocks: 128, unit: 73728}),  // MLA
			agree(c, r, shape{planes: 1, physical: 2, blocks: 1, unit: 300 << 20}),   // one unit of many slices
		)
	})
}

func TestGPUDamageIsLocated(t *testing.T) {
	do(t, openGPU(t), func(c *Context) error {
		r := rand.New(rand.NewPCG(3, 4))
		return errors.Join(
			located(c, r, shape{planes: 64, physical: 40, blocks: 32, unit: 32 << 10}, 500),
			located(c, r, shape{planes: 2, physical: 4, blocks: 4, unit: 203, gap: 5, offset: 3}, 500),
		)
	})
}

func TestGPURoundTripThroughAnotherProcess(t *testing.T) {
	d := loadGPU(t)
	info, err := d.Info(0)
	require.NoError(t, err)
	if !info.IPCEvents {
		missing(t, "device 0 (%s) has no events between processes", info.Name)
	}
	// The device may be done before anybody looks: nothing to see early.
	checkRoundTrip(t, d, gpuLibrary, func(kvsum.Table, kvsum.Table) error { return nil })
}

func TestGPUFaultInAnotherProcess(t *testing.T) {
	loadGPU(t)
	_, _, wait := startChild(t, "fault", gpuLibrary)
	wait()
}

func TestGPUTransfers(t *testing.T) {
	checkTransfers(t, openGPU(t), transfers(4<<20, 64<<10))
}

func TestGPUChecksumOfAGibibyte(t *testing.T) {
	var r checksumRates
	do(t, openGPU(t), func(c *Context) (err error) { r, err = measureChecksum(c, 32<<10, 1<<30, 20); return err })
	t.Logf("checksum %.0f GB/s, memory %.0f GB/s, %.0f %%", r.checksum/1e9, r.memory/1e9, 100*r.checksum/r.memory)
}
