package harness

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/cuda/standin"
)

// TestRoofline: memory is copied on this machine; to a GPU it goes through the
// driver, of which this is a stand-in.
func TestRoofline(t *testing.T) {
	require.Positive(t, hostCopy(3<<10).bytesPerSecond)
	library, err := standin.Build(t.TempDir())
	if errors.Is(err, standin.ErrNoCompiler) {
		Missing(t, "%v.", err)
	}
	require.NoError(t, err)
	seen, err := standin.Connect(library)
	require.NoError(t, err)
	driver, err := cuda.LoadLibrary(library)
	require.NoError(t, err)
	limit, err := deviceCopy(driver, 3<<10)
	require.NoError(t, err)
	require.Contains(t, limit.String(), "pinned memory to the GPU")
	require.Positive(t, limit.bytesPerSecond)
	require.Positive(t, seen.Calls("cuMemcpyHtoDAsync_v2"), "blocks went to the device")
}
