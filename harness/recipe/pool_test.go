package recipe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPoolsOfKilledRuns: what the server of a run that is gone has left in shared
// memory goes, unless a record says that the server was kept; that of a run which
// lives stays until its row is closed.
func TestPoolsOfKilledRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Shared memory is not in the file system here, so nothing is left there.")
	}
	t.Setenv("KVPROOF_CACHE", t.TempDir())
	records := filepath.Join(os.Getenv("KVPROOF_CACHE"), "running")
	require.NoError(t, os.MkdirAll(records, 0o700))
	gone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	require.NoError(t, gone.Run())
	pool := func(name string) string {
		path := filepath.Join(shmDir, "lmcache_l1_pool_"+name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		t.Cleanup(func() { _ = os.Remove(path) })
		return path
	}
	of := func(what string) string {
		return fmt.Sprintf("kvproof_%s%d_%s", what, gone.Process.Pid, filepath.Base(t.TempDir()))
	}
	row, alone := of(rowMark), of("")
	kept := fmt.Sprintf("kvproof_%s%d_kept", rowMark, gone.Process.Pid)
	dir := t.TempDir()
	paths := map[string]string{"row": pool(row), "alone": pool(alone), "kept": pool(kept), "ours": pool(poolName(dir))}
	record := fmt.Sprintf(`{"name": "lmcache", "pid": %d, "mark": "M", "argv": ["lmcache", "--shm-name", %q], "kept": true}`, os.Getpid(), kept)
	require.NoError(t, os.WriteFile(filepath.Join(records, "M.json"), []byte(record), 0o600))

	require.NoError(t, sweepPools())
	require.NoFileExists(t, paths["row"])
	require.NoFileExists(t, paths["alone"])
	require.FileExists(t, paths["kept"])
	require.FileExists(t, paths["ours"])
	require.NoError(t, removePool(dir))
	require.NoFileExists(t, paths["ours"])
	require.NoError(t, removePool(dir), "again")
}
