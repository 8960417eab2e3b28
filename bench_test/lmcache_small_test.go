//go:build lmcache

package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/recipe"
)

// TestSmallRealCacheServer has no pool and little memory.
func TestSmallRealCacheServer(t *testing.T) {
	nothingLeft(t)
	running := harness.StartLMCache(t, recipe.LMCacheServer{Chunk: chunk, NoPool: true, L1GB: 0.05})
	s := discover(t, running.Endpoints)

	// A transport other than the one asked for is an error, not a fallback.
	t.Run("transfer refused", func(t *testing.T) {
		_, err := s.Connect(t.Context(), lmcmp.Config{Shape: parseShape(t, "(2,64,4,1,8):float16:2"), Transfer: lmcmp.EngineDriven})
		require.ErrorIs(t, err, lmcmp.ErrTransfer)
		require.ErrorContains(t, err, "--shm-name")
	})

	// What leaves memory for want of room is a miss; what came last is whole.
	t.Run("eviction", func(t *testing.T) {
		const prompts = 100 // of a MiB each, in 51
		metrics := probe.New("lmcache", running.Endpoints.HTTP+"/metrics", nil)
		before, err := metrics.Snapshot(t.Context())
		require.NoError(t, err)
		c, err := s.Connect(t.Context(), lmcmp.Config{Shape: parseShape(t, "(2,64,8,16,128):float32:8"), Transfer: lmcmp.LMCacheDriven})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
		prompt := func(i int, phase string) lmcmp.Request {
			return lmcmp.Request{ID: fmt.Sprintf("%s-%d", phase, i), Tokens: []uint32{uint32(i), 1, 2, 3, 4, 5, 6, 7}}
		}
		content := func(i int) lmcmp.Content { return lmcmp.Content{Seed: uint64(i) << 32} }
		for i := range prompts {
			block := []int{1 + i%40}
			require.NoError(t, c.Write(block, content(i)))
			// A full server answers true and keeps nothing until it has evicted.
			waitFor(t, c, func(try int) lmcmp.Request {
				if try%100 == 1 {
					r := prompt(i, fmt.Sprintf("store-%d", try))
					_, err := c.Store(t.Context(), r, 0, 1, block)
					require.NoError(t, err)
					require.NoError(t, c.End(t.Context(), r))
				}
				return prompt(i, fmt.Sprintf("visible-%d", try))
			}, 1)
		}
		first := prompt(0, "first")
		hits, _, err := c.Lookup(t.Context(), first)
		require.NoError(t, err)
		require.Zero(t, hits, "the least recently used is gone")
		require.NoError(t, c.End(t.Context(), first))
		last := prompt(prompts-1, "last")
		hits, _, err = c.Lookup(t.Context(), last)
		require.NoError(t, err)
		require.Equal(t, 1, hits)
		require.NoError(t, c.Poison([]int{50}))
		_, err = c.Retrieve(t.Context(), last, 0, 1, []int{50})
		require.NoError(t, err)
		mismatches, err := c.Verify([]int{50}, content(prompts-1))
		require.NoError(t, err)
		require.Empty(t, mismatches)
		require.NoError(t, c.End(t.Context(), last))
		require.Eventually(t, func() bool {
			after, err := metrics.Snapshot(t.Context())
			require.NoError(t, err)
			evicted, _ := probe.Delta(before, after, "lmcache_mp_l1_evicted_chunks_total", nil)
			return evicted >= prompts-51
		}, time.Minute, 20*time.Millisecond)
	})
}
