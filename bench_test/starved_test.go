package bench_test

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStarvedClient: beside loops that take most of every processor the client's
// stamps are late, and the cells say so.
func TestStarvedClient(t *testing.T) {
	for range 4 * runtime.NumCPU() {
		busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		require.NoError(t, busy.Start())
		t.Cleanup(func() { _ = busy.Wait() }) // the test's context, which is over by then, has ended it
	}
	out, err := suite(t.Context(), "-backend=engine-cache", "-workload=unique", "-blocksize=16",
		"-requests=8", "-concurrency=4", "-inputlen=64", "-outputlen=32", "-results="+t.TempDir()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `engine-cache +unique .* client-bound`, string(out))
}
