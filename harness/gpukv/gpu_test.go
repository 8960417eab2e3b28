//go:build gpu

package gpukv

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
)

// The same round trip over a real driver, with a small shape and one of 128 KiB a
// token. It needs a device and its driver, and nothing else.
func TestGPURoundTrip(t *testing.T) {
	driver, err := cuda.Load()
	if errors.Is(err, cuda.ErrNoDriver) {
		missing(t, "This hands the memory of a GPU to another process, and there is none to be used here: %v.", err)
	}
	require.NoError(t, err)
	server, _ := startServer(t, served{Library: cuda.DriverLibrary, Chunk: chunk})
	for i, spec := range []string{"(2,64,4,2,8):float16:3", "(2,64,4,8,128):bfloat16:32", "(1,64,4,1,576):bfloat16:61"} {
		checkRoundTrip(t, driver, server, spec, 100*i)
	}
}
