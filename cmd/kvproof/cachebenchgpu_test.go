//go:build !nogpu

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/cuda/standin"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

// Where the KV lies follows from the mode, the transfer and what is there;
// that a driver does not work is never passed over.
func TestPlaceKV(t *testing.T) {
	library, err := standin.Build(t.TempDir())
	if errors.Is(err, standin.ErrNoCompiler) {
		if os.Getenv("KVPROOF_REQUIRE") != "" {
			t.Fatalf("required, but there is no stand-in for the driver: %v", err)
		}
		t.Skipf("Where KV lies was not tested without a stand-in for the driver: %v; apt-get install gcc.", err)
	}
	require.NoError(t, err)
	there := func() (*cuda.Driver, error) { return cuda.LoadLibrary(library) }
	none := func() (*cuda.Driver, error) { return cuda.LoadLibrary("libkvproof-not-here.so.1") }
	broken := func() (*cuda.Driver, error) { return nil, errors.New("starting libcuda.so.1: out of memory") }
	for _, c := range []struct {
		mode     string
		transfer lmcmp.Transfer
		driver   func() (*cuda.Driver, error)
		gpu      bool
		err      string
	}{
		{"auto", lmcmp.Auto, there, true, ""},
		{"auto", lmcmp.LMCacheDriven, there, true, ""},
		{"auto", lmcmp.EngineDriven, there, false, ""},
		{"auto", lmcmp.Auto, none, false, ""},
		{"auto", lmcmp.Auto, broken, false, "--mode auto: starting libcuda.so.1: out of memory; --mode cpu does without a GPU"},
		{"cpu", lmcmp.Auto, there, false, ""},
		{"cpu", lmcmp.Auto, broken, false, ""},
		{"gpu", lmcmp.Auto, there, true, ""},
		{"gpu", lmcmp.EngineDriven, there, true, ""}, // refused when the server is known
		{"gpu", lmcmp.Auto, none, false, "--mode gpu requires CUDA: no CUDA driver"},
		{"gpu", lmcmp.Auto, broken, false, "--mode gpu: starting libcuda.so.1"},
	} {
		t.Run(fmt.Sprintf("%s/%s/%v", c.mode, c.transfer, c.err), func(t *testing.T) {
			b := &cacheBench{mode: c.mode}
			b.Transfer = c.transfer
			b.Shape, err = lmcmp.ParseShape("(2,16,4,1,8):float16:1")
			require.NoError(t, err)
			err := b.placeKV(c.driver)
			require.Equal(t, c.gpu, b.GPU)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.gpu, b.NewMemory != nil)
			if c.gpu {
				m, err := b.NewMemory(0, 0)
				require.NoError(t, err)
				require.Len(t, m.Tensors(), 1)
				require.NoError(t, m.Close())
			}
		})
	}
}

// Without a driver it says what it needs, and exits with 1 before it asks the
// server for anything.
func TestCacheBenchWithoutAGPU(t *testing.T) {
	if _, err := cuda.Load(); err == nil {
		t.Skip("This machine has a GPU; what is said without one is not shown here.")
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"cachebench", "--mode", "gpu", "--end", "1", "--rpc-url", "tcp://127.0.0.1:1"}, &out, &errs)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "kvproof cachebench: --mode gpu requires CUDA: no CUDA driver")
	require.Empty(t, out.String())
}
