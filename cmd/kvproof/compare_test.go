package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare: of two differences between two runs, the one that the client's
// own error could make is named.
func TestCompare(t *testing.T) {
	write := func(name string, cold, warm, client int) string {
		path := filepath.Join(t.TempDir(), name)
		text := "stack: mini\n"
		for _, spread := range []int{0, 1000, -1000} {
			text += fmt.Sprintf("BenchmarkServe/backend=lmcache/block=128/workload=unique-2 1 5 ns/op %d cold-p50-ttft-ns %d warm-p50-ttft-ns %d client-p99-ns 99.9 hit-%%\n",
				cold+spread, warm+spread, client)
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	before, after := write("old", 200e6, 9e6, 1e5), write("new", 300e6, 8e6, 2e6)
	compare := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"compare"}, args...), &out, &errs)
		return out.String(), errs.String(), code
	}
	out, _, code := compare(before, after)
	require.Equal(t, 0, code)
	require.Equal(t, "client-bound: Serve/backend=lmcache/block=128/workload=unique-2 warm-p50-ttft: 9ms to 8ms; the client's own error at this load is 2ms, over a tenth of that difference\n", out)
	out, _, code = compare(before, before)
	require.Equal(t, 0, code)
	require.Empty(t, out)

	_, errs, code := compare(before)
	require.Equal(t, 2, code)
	require.Contains(t, errs, "usage: kvproof compare OLD NEW")
	_, errs, code = compare(before, filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no such file")
}
