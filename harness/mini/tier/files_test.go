package tier

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesFromOutside(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Config{L1Bytes: 10 * one, L2Dir: dir})
	put(t, o, 1, 9)
	file := func(i int) string { return filepath.Join(o.files.dir, key(i).String()+".data") }

	require.NoError(t, os.WriteFile(file(1), []byte{0, 0, 0x80, 0x3f}, 0o644))
	got, _, err := o.Get(key(1))
	require.NoError(t, err)
	require.Equal(t, value(1), got, "little-endian float32; other bytes of that length are served")

	require.NoError(t, os.WriteFile(file(1), []byte{1, 2, 3}, 0o644))
	_, from, err := o.Get(key(1))
	require.ErrorContains(t, err, fmt.Sprintf("reading object %s from L2: its file has 3 bytes, want 4", key(1)))
	require.Equal(t, L2, from)
	require.False(t, o.Mutate(key(1), func([]float32) { t.Error("called without values") }))

	require.NoError(t, os.Remove(file(2)))
	_, _, err = o.Get(key(2))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Zero(t, o.Stats().Misses, "an error is no miss")

	require.NoError(t, os.RemoveAll(o.files.dir))
	require.ErrorContains(t, o.Put(key(9), value(9)), "writing object")
	require.Equal(t, None, o.Where(key(9)), "in neither tier after an error")
}
