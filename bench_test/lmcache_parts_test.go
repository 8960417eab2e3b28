//go:build lmcache

package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/shm"
)

// nothingLeft checks at the test's end that no shared memory of ours is left,
// nor of servers that were started here.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		own, err := shm.Own()
		require.NoError(t, err)
		require.Empty(t, own)
		pools, err := filepath.Glob(fmt.Sprintf("/dev/shm/lmcache_l1_pool_kvproof_%d_*", os.Getpid()))
		require.NoError(t, err)
		require.Empty(t, pools)
	})
}

func discover(t *testing.T, e lmcmp.Endpoints) *lmcmp.Server {
	t.Helper()
	s, err := lmcmp.Discover(t.Context(), e, "")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func parseShape(t *testing.T, spec string) lmcmp.Shape {
	t.Helper()
	shape, err := lmcmp.ParseShape(spec)
	require.NoError(t, err)
	return shape
}

// cacheRun is a run that must be valid.
func cacheRun(t *testing.T, s *lmcmp.Server, config cachebench.Config) *cachebench.Result {
	t.Helper()
	config.Salt = t.Name()
	config.Salt = strings.NewReplacer("/", "-", "@", "-").Replace(config.Salt)
	config.Patience = 60 * time.Second // a busy machine is no fault
	result, err := cachebench.Run(t.Context(), s, config)
	require.NoError(t, err)
	require.Empty(t, result.Findings)
	require.Empty(t, result.Unsafe)
	require.True(t, result.Valid())
	return result
}

// promptOf is a prompt of two chunks of 8 tokens.
func promptOf(id string) lmcmp.Request {
	return lmcmp.Request{ID: id, Tokens: []uint32{7, 7, 7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}
}

// storeVisible stores both chunks and waits until they are found.
func storeVisible(t *testing.T, c *lmcmp.Client, content lmcmp.Content, blocks []int) {
	t.Helper()
	r := promptOf("store")
	require.NoError(t, c.Write(blocks, content))
	_, err := c.Store(t.Context(), r, 0, 2, blocks)
	require.NoError(t, err)
	require.NoError(t, c.End(t.Context(), r))
	waitFor(t, c, func(try int) lmcmp.Request { return promptOf(fmt.Sprintf("visible-%d", try)) }, 2)
}

// waitFor asks until that many chunks are found.
func waitFor(t *testing.T, c *lmcmp.Client, ask func(try int) lmcmp.Request, chunks int) {
	t.Helper()
	try := 0
	require.Eventually(t, func() bool {
		try++
		r := ask(try)
		hits, _, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, c.Free(t.Context(), r))
		require.NoError(t, c.End(t.Context(), r))
		return hits == chunks
	}, time.Minute, time.Millisecond)
}

// retrieveInto looks both chunks up, retrieves them, and compares.
func retrieveInto(t *testing.T, c *lmcmp.Client, content lmcmp.Content, blocks []int) []lmcmp.Mismatch {
	t.Helper()
	r := promptOf("retrieve")
	require.NoError(t, c.Poison(blocks))
	hits, _, err := c.Lookup(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 2, hits)
	_, err = c.Retrieve(t.Context(), r, 0, 2, blocks)
	require.NoError(t, err)
	require.NoError(t, c.End(t.Context(), r))
	mismatches, err := c.Verify(blocks, content)
	require.NoError(t, err)
	return mismatches
}
