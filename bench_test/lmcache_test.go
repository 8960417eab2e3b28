//go:build lmcache

package bench_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// lmcacheReleases are the releases that tests start: the pinned one, one that
// describes tensors in another way and does not know operations by name, and of
// the older ones those that somebody has installed.
func lmcacheReleases() []string {
	releases := []string{recipe.LMCacheRelease(), "0.5.5"}
	for _, older := range []string{"0.5.4", "0.5.2", "0.4.7"} {
		if _, err := recipe.FindLMCache(older); err == nil {
			releases = append(releases, older)
		}
	}
	return releases
}

var bothTransfers = []lmcmp.Transfer{lmcmp.EngineDriven, lmcmp.LMCacheDriven}

// TestRealCacheServer asks real servers. One of them is shared, since each takes
// long to start; what kills it comes last.
func TestRealCacheServer(t *testing.T) {
	for _, release := range lmcacheReleases() {
		t.Run("release="+release, func(t *testing.T) {
			nothingLeft(t)
			running := harness.StartLMCache(t, recipe.LMCacheServer{Release: release, Chunk: chunk})
			s := discover(t, running.Endpoints)
			require.Equal(t, release, s.Dialect.Version)
			require.Equal(t, chunk, s.Chunk)
			t.Run("every transfer", func(t *testing.T) { everyTransfer(t, s) })
			t.Run("boundaries", func(t *testing.T) { boundaries(t, s) })
			t.Run("damage", func(t *testing.T) { damage(t, running, s) })
			t.Run("clear", func(t *testing.T) { clearing(t, s) })
			t.Run("asked without HTTP", func(t *testing.T) {
				asked, err := lmcmp.Discover(t.Context(), lmcmp.Endpoints{RPC: running.Endpoints.RPC}, "")
				require.NoError(t, err)
				// Pings tell only releases with other numbers apart.
				require.Equal(t, map[string]string{"0.5.4": "0.5.5"}[release], strings.TrimPrefix(asked.Dialect.Version, release))
				require.Equal(t, chunk, asked.Chunk)
			})
			t.Run("killed in mid-run", func(t *testing.T) { killedInMidRun(t, running, s) })
		})
	}
}

// chunk is that of the servers here, in tokens.
const chunk = 8

// everyTransfer runs every transfer, shape, number of workers and clients: all
// bytes right, cold misses, warm hits, and counters, locks and checksums of the
// server agree, or there would be findings.
func everyTransfer(t *testing.T, s *lmcmp.Server) {
	for _, transfer := range bothTransfers {
		for _, c := range []struct {
			name    string
			shape   string
			clients int
			workers int
			op      cachebench.Operation
		}{
			{"one client", "(2,128,4,1,8):float16:2", 1, 1, cachebench.Operation{}},
			{"eight clients", "(2,128,4,1,8):float16:2", 8, 1, cachebench.Operation{}},
			{"tensor parallel", "(2,128,4,2,8):float32:2", 2, 2, cachebench.Operation{}},
			{"MLA", "(1,128,4,2,8):bfloat16:3", 2, 2, cachebench.Operation{}},
			{"bytes", "(2,128,8,2,8):uint8:2", 2, 1, cachebench.Operation{}},
			{"two groups", "(2,128,4,1,8):float16:2;(2,128,4,2,8):float16:1", 2, 1, cachebench.Operation{}},
			{"stores", "(2,128,4,1,8):float16:2", 3, 1, cachebench.Operation{Kind: cachebench.OpStore}},
			{"retrieves", "(2,128,4,1,8):float16:2", 3, 1, cachebench.Operation{Kind: cachebench.OpRetrieve}},
			{"mixed", "(2,128,4,1,8):float16:2", 3, 1, cachebench.Operation{Kind: cachebench.OpMixed, Share: 0.5}},
		} {
			t.Run(fmt.Sprintf("transfer=%s/%s", transfer, c.name), func(t *testing.T) {
				shape := parseShape(t, c.shape)
				if len(shape) > 1 && transfer == lmcmp.EngineDriven {
					_, err := s.Connect(t.Context(), lmcmp.Config{Shape: shape, Transfer: transfer})
					require.ErrorContains(t, err, "only known for one")
					return
				}
				const requests = 24
				result := cacheRun(t, s, cachebench.Config{
					Shape: shape, Transfer: transfer, Tokens: 19, Requests: requests, Clients: c.clients, Workers: c.workers, Op: c.op,
				})
				require.Equal(t, requests, result.Requests)
				require.Equal(t, transfer, result.Transfer)
				require.Positive(t, result.ChecksumOK)
				if c.op.Kind == "" {
					require.Equal(t, requests, result.ChecksumOK)
					require.Equal(t, requests*16, result.Hit, "two of two chunks each")
					require.Equal(t, result.Asked, result.Hit)
				}
				if transfer == lmcmp.LMCacheDriven {
					require.Equal(t, result.ChecksumOK, result.ServerSums)
				}
			})
		}
	}
}

// boundaries are the lengths at which a chunk can be miscounted.
func boundaries(t *testing.T, s *lmcmp.Server) {
	shape := parseShape(t, "(2,64,4,1,8):float16:2")
	for _, transfer := range bothTransfers {
		for _, tokens := range []int{chunk, chunk + 1, 2*chunk - 1, 2 * chunk, 2*chunk + 1, 5*chunk + 3} {
			t.Run(fmt.Sprintf("transfer=%s/tokens=%d", transfer, tokens), func(t *testing.T) {
				result := cacheRun(t, s, cachebench.Config{Shape: shape, Transfer: transfer, Tokens: tokens, Requests: 3})
				require.Equal(t, 3*(tokens/chunk)*chunk, result.Hit)
			})
		}
		for _, tokens := range []int{0, 1, chunk - 1} {
			t.Run(fmt.Sprintf("transfer=%s/tokens=%d", transfer, tokens), func(t *testing.T) {
				_, err := cachebench.Run(t.Context(), s, cachebench.Config{Shape: shape, Transfer: transfer, Tokens: tokens, Requests: 3})
				require.ErrorContains(t, err, "no whole chunk")
				if tokens == 0 {
					return
				}
				// The server itself is asked, too: there is nothing to find.
				c, err := s.Connect(t.Context(), lmcmp.Config{Shape: shape, Transfer: transfer})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
				r := lmcmp.Request{ID: "short", Tokens: make([]uint32, tokens)}
				hits, _, err := c.Lookup(t.Context(), r)
				require.NoError(t, err)
				require.Zero(t, hits)
				require.NoError(t, c.End(t.Context(), r))
			})
		}
	}
}

// damage flips a byte of the server's pool between store and retrieve: the
// server says that all is well.
func damage(t *testing.T, running *recipe.RunningLMCache, s *lmcmp.Server) {
	for _, transfer := range bothTransfers {
		t.Run("transfer="+string(transfer), func(t *testing.T) {
			c, err := s.Connect(t.Context(), lmcmp.Config{Shape: parseShape(t, "(2,64,4,2,8):float16:3"), Transfer: transfer, Salt: "damage-" + string(transfer)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
			content := lmcmp.Content{Seed: 5 << 40}
			stored, other := []int{1, 2, 3, 4}, []int{20, 11, 13, 12}
			storeVisible(t, c, content, stored)

			pool, err := shm.Open("/"+strings.TrimPrefix(running.Pool(), "/dev/shm/"), 0)
			require.NoError(t, err)
			at := bytes.Index(pool.Bytes(), content.Block(0, 0, 1, 4*2*8*2)) // layer 0, K, the second block
			if transfer == lmcmp.LMCacheDriven && !s.Dialect.HintHonoured {
				require.Negative(t, at, "such a server takes the tokens of a block apart")
				return
			}
			require.GreaterOrEqual(t, at, 0)
			pool.Bytes()[at+3] ^= 0x10
			require.NoError(t, pool.Close())

			mismatches := retrieveInto(t, c, content, other)
			require.Len(t, mismatches, 1)
			m := mismatches[0]
			require.Equal(t, "one bit flipped", m.Looks)
			require.Equal(t, m.Want^0x10, m.Got)
			require.Equal(t, [5]int{0, 0, 1, 11, 3}, [5]int{m.Layer, m.Plane, m.Position, m.Block, m.Byte})
		})
	}
}

// clearing: a cleared server misses, and serves again.
func clearing(t *testing.T, s *lmcmp.Server) {
	c, err := s.Connect(t.Context(), lmcmp.Config{Shape: parseShape(t, "(2,64,4,1,8):float16:2"), Transfer: lmcmp.EngineDriven})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
	content := lmcmp.Content{Seed: 9 << 40}
	storeVisible(t, c, content, []int{1, 2, 3, 4})
	require.NoError(t, s.ClearL1(t.Context()))
	r := promptOf("after-clear")
	hits, _, err := c.Lookup(t.Context(), r)
	require.NoError(t, err)
	require.Zero(t, hits)
	require.NoError(t, c.End(t.Context(), r))
	storeVisible(t, c, content, []int{1, 2, 3, 4})
	require.Empty(t, retrieveInto(t, c, content, []int{5, 6, 7, 8}))
}

// killedInMidRun: the benchmark ends at once, names what it was doing, has no
// numbers, and leaves nothing behind; so does a client of its own.
func killedInMidRun(t *testing.T, running *recipe.RunningLMCache, s *lmcmp.Server) {
	shape := parseShape(t, "(2,64,4,1,8):float16:2")
	c, err := s.Connect(t.Context(), lmcmp.Config{Shape: shape, Transfer: lmcmp.LMCacheDriven})
	require.NoError(t, err)
	var seen atomic.Int64
	result, err := cachebench.Run(t.Context(), s, cachebench.Config{
		Shape: shape, Transfer: lmcmp.LMCacheDriven, Tokens: 16, Clients: 2, Salt: "killed",
		Progress: func(string) {
			if seen.Add(1) == 20 {
				running.Kill()
			}
		},
	})
	require.NoError(t, err)
	require.False(t, result.Valid())
	require.Equal(t, row.ServerDied, result.Findings[0].Code)
	require.Contains(t, result.Findings[0].Evidence, "connect")
	require.NotEmpty(t, result.Unsafe)
	for _, s := range result.Summary() {
		require.NotContains(t, cachebench.Timed(), s.ID, "a run that is not valid has no latency")
	}

	_, _, err = c.Lookup(t.Context(), promptOf("after-kill"))
	require.ErrorContains(t, err, "lookup: ")
	if err := c.Close(t.Context()); s.Dialect.Version == "0.4.7" {
		require.NoError(t, err, "a client of that release is not unregistered on a CPU")
	} else {
		require.ErrorIs(t, err, lmcmp.ErrUnregister)
	}
}

// TestRealCacheServerTiers: what leaves L1 for want of room comes back from the
// second tier, byte for byte, and the counters say from where.
func TestRealCacheServerTiers(t *testing.T) {
	nothingLeft(t)
	dir := t.TempDir()
	running := harness.StartLMCache(t, recipe.LMCacheServer{Chunk: chunk, L2Dir: dir})
	s := discover(t, running.Endpoints)
	c, err := s.Connect(t.Context(), lmcmp.Config{Shape: parseShape(t, "(2,64,4,1,8):float16:2"), Transfer: lmcmp.EngineDriven})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
	content := lmcmp.Content{Seed: 11 << 40}
	storeVisible(t, c, content, []int{1, 2, 3, 4})
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		status, err := s.Status(t.Context())
		require.NoError(t, err)
		return len(entries) == 2 && status.Busy == ""
	}, time.Minute, 20*time.Millisecond, "one file for each chunk")
	require.NoError(t, s.ClearL1(t.Context()))
	metrics := probe.New("lmcache", running.Endpoints.HTTP+"/metrics", nil)
	before, err := metrics.Snapshot(t.Context())
	require.NoError(t, err)
	require.Empty(t, retrieveInto(t, c, content, []int{5, 6, 7, 8}))
	require.Eventually(t, func() bool {
		after, err := metrics.Snapshot(t.Context())
		require.NoError(t, err)
		hit, _ := probe.Delta(before, after, "lmcache_mp_lookup_hit_l2_tokens_total", nil)
		return hit == 16
	}, time.Minute, 20*time.Millisecond)
}
