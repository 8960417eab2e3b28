package engine

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// lengths are the prompt lengths around every block border that matters.
func lengths(block int) []int {
	n := []int{1, 2, block - 1, block, block + 1, 256 + block/2}
	for _, k := range []int{2, 4, 8} {
		n = append(n, k*block-1, k*block, k*block+1)
	}
	return n
}

// requireSame asserts that two outputs are equal, logprobs bit by bit.
func requireSame(t *testing.T, want, got result) {
	t.Helper()
	require.Equal(t, want.tokens, got.tokens)
	require.Equal(t, want.text, got.text)
	require.Equal(t, len(want.logprobs), len(got.logprobs))
	for i := range want.logprobs {
		require.Equal(t, math.Float64bits(*want.logprobs[i]), math.Float64bits(*got.logprobs[i]), "logprob %d", i)
	}
}

// Cold, warm: the law of the cache, the same output bit by bit, and no more
// computed than the hit left over.
func TestHitLaws(t *testing.T) {
	const output = 3
	for _, block := range []int{16, 32} {
		for _, c := range []struct {
			name  string
			local bool
			chunk int // 0: no store
			law   func(p int) int
		}{
			{"no cache", false, 0, func(int) int { return 0 }},
			{"own cache", true, 0, func(p int) int { return (p - 1) / block * block }},
			{"store", false, block, func(p int) int { return min(p/block*block, p-1) }},
			{"store with chunks of four blocks", false, 4 * block, func(p int) int { return min(p/(4*block)*(4*block), p-1) }},
			{"both", true, block, func(p int) int { return min(p/block*block, p-1) }},
		} {
			t.Run(fmt.Sprintf("block=%d/%s", block, c.name), func(t *testing.T) {
				e := newEngine(t, func(cfg *Config) {
					cfg.BlockSize, cfg.PrefixCaching = block, c.local
					if c.chunk > 0 {
						cfg.Store = newMemStore(c.chunk, block)
					}
				})
				var answers []result
				flops := 0.0
				// run expects a hit of so many tokens, and no more work than is left.
				run := func(p, hit int) result {
					t.Helper()
					r := complete(t, e, ask(prompt(uint64(p), p)).with(object{"max_tokens": output}))
					require.Equal(t, hit, r.cached, "P = %d", p)
					require.Equal(t, p, r.prompt)
					flops += flopsOf(hit, p, output)
					require.InDelta(t, flops, series(t, e, "vllm:estimated_flops_per_gpu_total"), 0, "P = %d", p)
					answers = append(answers, r)
					return r
				}
				for _, p := range lengths(block) {
					cold := run(p, 0)
					requireSame(t, cold, run(p, c.law(p)))
				}
				checkIdentities(t, e, answers...)
			})
		}
	}
}

// flopsOf is what a request needs: the prompt beyond the hit, in chunks, and
// all output but the last token.
func flopsOf(hit, p, output int) float64 {
	m := nano()
	flops := int64(0)
	for at := hit; at < p; {
		n := min(prefillChunk, p-at)
		flops += m.FLOPs(at, n)
		if at += n; at < p {
			flops -= m.LogitFLOPs()
		}
	}
	for i := range output - 1 {
		flops += m.FLOPs(p+i, 1)
	}
	return float64(flops)
}

// The engine's output is what the model gives without any engine.
func TestOutputIsTheModels(t *testing.T) {
	const block = 16
	ids := prompt(5, 70)
	m := nano()
	var blocks [][]float32
	for range 8 {
		blocks = append(blocks, make([]float32, m.BlockLen(block)))
	}
	logits := make([]float32, m.Config().Vocab)
	tokens, want := ids, result{}
	for start := 0; len(want.tokens) < 8; {
		_, err := m.Forward(block, []model.Sequence{{Tokens: tokens[start:], Start: start, Blocks: blocks, Logits: logits}})
		require.NoError(t, err)
		start = len(tokens)
		next := model.Greedy(logits)
		lp, _, _ := model.Logprobs(logits, next, 1)
		want.tokens, want.logprobs = append(want.tokens, next), append(want.logprobs, &lp)
		tokens = append(tokens, next)
	}
	got := complete(t, newEngine(t, nil), ask(ids))
	want.text = got.text
	requireSame(t, want, got)
}

func TestSharedPrefix(t *testing.T) {
	e := newEngine(t, caching)
	shared := prompt(1, 64)
	complete(t, e, ask(append(append([]int32{}, shared...), prompt(2, 40)...)))
	second := append(append([]int32{}, shared...), prompt(3, 40)...)
	warm := complete(t, e, ask(second))
	require.Equal(t, 64, warm.cached)
	requireSame(t, complete(t, newEngine(t, nil), ask(second)), warm)
	// Equal tokens after another beginning are other KV.
	require.Zero(t, complete(t, e, ask(append(prompt(4, 16), shared[16:]...))).cached)
}

// Blocks of generated tokens are cached too, as vLLM does: a conversation that
// goes on hits its own answer.
func TestGeneratedTokensAreCached(t *testing.T) {
	e := newEngine(t, caching)
	ids := prompt(6, 20)
	first := complete(t, e, ask(ids).with(object{"max_tokens": 45}))
	next := append(append(ids, first.tokens...), prompt(7, 20)...)
	// 20+45 tokens, of which the last has no KV: 4 whole blocks of 16.
	warm := complete(t, e, ask(next))
	require.Equal(t, 64, warm.cached)
	requireSame(t, complete(t, newEngine(t, nil), ask(next)), warm)
}

func TestSaltsIsolate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"own cache", caching},
		{"store", func(c *Config) { c.Store = newMemStore(16, 16) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, c.change)
			ids := prompt(8, 50)
			salted := func(salt string) object { return ask(ids).with(object{"cache_salt": salt}) }
			complete(t, e, salted("one"))
			require.Equal(t, 48, complete(t, e, salted("one")).cached)
			require.Zero(t, complete(t, e, salted("two")).cached)
			require.Zero(t, complete(t, e, ask(ids)).cached, "no salt is a namespace of its own")
			require.Equal(t, 48, complete(t, e, ask(ids)).cached)
		})
	}
}

// What was loaded from the store enters the engine's own cache.
func TestLoadedBlocksEnterTheOwnCache(t *testing.T) {
	store := newMemStore(16, 16)
	ids := prompt(9, 50)
	complete(t, newEngine(t, func(c *Config) { c.Store = store }), ask(ids))
	e := newEngine(t, func(c *Config) { c.Store, c.PrefixCaching = store, true })
	require.Equal(t, 48, complete(t, e, ask(ids)).cached)
	require.InDelta(t, 48, series(t, e, "vllm:external_prefix_cache_hits_total"), 0)
	require.Equal(t, 48, complete(t, e, ask(ids)).cached)
	require.InDelta(t, 48, series(t, e, "vllm:external_prefix_cache_hits_total"), 0, "the second hit is local")
	require.Equal(t, 1, store.loads)
}

// P = 64 at B = 32: 32 tokens from the own cache and 31 from the store, as
// observed with LMCache.
func TestBothCachesCombine(t *testing.T) {
	store := newMemStore(32, 32)
	e := newEngine(t, func(c *Config) { c.BlockSize, c.Store, c.PrefixCaching = 32, store, true })
	ids := prompt(10, 64)
	cold := complete(t, e, ask(ids))
	warm := complete(t, e, ask(ids))
	require.Equal(t, 63, warm.cached)
	require.InDelta(t, 32, series(t, e, "vllm:prompt_tokens_by_source_total", "source", localHit), 0)
	require.InDelta(t, 31, series(t, e, "vllm:prompt_tokens_by_source_total", "source", externalHit), 0)
	requireSame(t, cold, warm)
}

// Blocks of the own cache are shared: what a store has for them is not written
// over them.
func TestLoadLeavesSharedBlocksAlone(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.Store, c.PrefixCaching = store, true })
	ids := prompt(16, 64) // its last block hits in the store only
	cold := complete(t, e, ask(ids))
	store.loaded = func(dst [][]float32) error {
		for _, block := range dst[:3] {
			block[0] = float32(math.NaN())
		}
		return nil
	}
	warm := complete(t, e, ask(ids))
	require.Equal(t, 1, store.loads)
	require.Equal(t, 63, warm.cached)
	requireSame(t, cold, warm)
	requireSame(t, cold, complete(t, e, ask(ids)))
}

// A request that is cancelled halfway leaves only blocks in the own cache that
// hold what they are said to.
func TestCancelledRequestLeavesNoHoles(t *testing.T) {
	store := newMemStore(16, 16)
	ids := prompt(17, 100)
	want := complete(t, newEngine(t, func(c *Config) { c.Store = store }), ask(ids[:48]))
	require.Zero(t, want.cached)

	e := newEngine(t, func(c *Config) { c.Store, c.PrefixCaching = store, true })
	ctx, cancel := context.WithCancel(t.Context())
	store.loaded = func([][]float32) error { cancel(); return nil }
	e.Handler().ServeHTTP(httptest.NewRecorder(), completionRequest(t, ask(ids)).WithContext(ctx))
	eventually(t, func() bool { return e.load() == load{} }, "the request has ended")

	store.loaded = nil
	again := complete(t, e, ask(ids))
	require.Equal(t, 48, again.cached)
	require.InDelta(t, 48, series(t, e, "vllm:prefix_cache_hits_total"), 0)
	requireSame(t, complete(t, newEngine(t, nil), ask(ids)), again)
}
