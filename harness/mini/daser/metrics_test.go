package daser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// TestMetricsAppearWithTheirFirstUse: absent is not zero.
func TestMetricsAppearWithTheirFirstUse(t *testing.T) {
	s := newStack(t, Prefix)
	_, text := call(t, http.MethodGet, s.url+"/metrics", nil)
	require.NotContains(t, text, "_total")
	require.NotContains(t, text, "daser_vllm_health_up")
	require.InDelta(t, 1, s.counter(t, "daser_up"), 0)
	require.InDelta(t, 1, s.counter(t, `daser_info{mode="prefix",transfer="memory"}`), 0)
	require.InDelta(t, 0, s.counter(t, "daser_l1_bytes_used"), 0)
	require.InDelta(t, 64<<20, s.counter(t, "daser_l1_bytes_capacity"), 0)
	s.do(t, http.MethodGet, "/health", nil, nil)
	require.InDelta(t, 1, s.counter(t, "daser_vllm_health_up"), 0)
}

// TestMetricsOfAPrefixCycle: cold and warm over one prompt.
func TestMetricsOfAPrefixCycle(t *testing.T) {
	s := newStack(t, Prefix)
	ids := tokens(1, 3*size)
	s.complete(t, ids, nil)
	s.drain(t)
	s.complete(t, ids, nil)
	slot := float64(4 * nano().BlockLen(size))
	for series, want := range map[string]float64{
		`daser_cache_lookup_total{result="miss"}`:                                          1,
		`daser_cache_lookup_total{result="hit"}`:                                           1,
		"daser_cache_requested_tokens_total":                                               2 * 3 * size,
		"daser_cache_matched_tokens_total":                                                 3 * size, // of chunks: the last token, too
		"daser_cache_prefix_reuse_tokens_count":                                            1,
		`daser_cache_prefix_reuse_tokens_bucket{le="16"}`:                                  0,
		`daser_cache_prefix_reuse_tokens_bucket{le="64"}`:                                  1,
		"daser_cache_committed_chunks_total":                                               3,
		"daser_external_prefix_cache_queries_total":                                        2 * 3 * size,
		"daser_external_prefix_cache_hits_total":                                           3*size - 1,
		`daser_transfer_operations_total{op="store",status="ok"}`:                          1,
		`daser_transfer_operations_total{op="load",status="ok"}`:                           1,
		`daser_transfer_operations_total{op="load",status="error"}`:                        -1,
		`daser_transfer_bytes_total{op="store"}`:                                           3 * slot,
		`daser_transfer_bytes_total{op="load"}`:                                            3 * slot,
		`daser_transfer_duration_seconds_count{op="load"}`:                                 1,
		`daser_transfer_chunk_size_bytes_count{op="load"}`:                                 3,
		`daser_transfer_chunk_size_bytes_sum{op="store"}`:                                  3 * slot,
		"daser_l1_hits_total":                                                              3,
		"daser_l1_misses_total":                                                            -1,
		"daser_l1_bytes_used":                                                              3 * slot,
		`kvproof_store_hit_tokens_total{tier="l1"}`:                                        3 * size,
		`kvproof_store_loaded_bytes_total{tier="l1"}`:                                      3 * slot,
		`daser_cache_evicted_chunks_total{reason="capacity"}`:                              -1,
		"daser_cache_late_evicted_commits_total":                                           -1,
		fmt.Sprintf("daser_transfer_chunk_size_bytes_bucket{op=%q,le=%q}", "load", "+Inf"): 3,
	} {
		require.InDelta(t, want, s.counter(t, series), 0, series)
	}
}

// TestChunkCountersDouble: /infer with trace_cache looks up once itself and
// the engine again; a fixed segment that is not there costs one more.
func TestChunkCountersDouble(t *testing.T) {
	s := newStack(t, Chunk)
	document, task, prefix := tokens(1, 2*size), tokens(2, 5), tokens(3, size)
	id := s.upload(t, document)
	require.InDelta(t, -1, s.counter(t, "daser_cache_requested_tokens_total"), 0, "an upload looks nothing up")
	prompt, requested, matched := float64(2*size+5), 0.0, 0.0
	for _, step := range []struct {
		name               string
		more               object
		requested, matched float64
		engine             float64 // matched by the engine's own lookup
	}{
		{"traced", object{}, 2 * prompt, 2 * 2 * size, 2 * size},
		{"not traced", object{"trace_cache": false}, prompt, 2 * size, 2 * size},
		{"without the cache", object{"use_kv_cache": false}, 0, 0, 0},
		{"with a prefix of its own", object{"prefix_token_ids": prefix}, size + 2*(size+prompt), 2 * 3 * size, 3 * size},
		{"and again", object{"prefix_token_ids": prefix}, 2 * (size + prompt), 2 * 3 * size, 3 * size},
	} {
		before := max(0, s.counter(t, `kvproof_store_hit_tokens_total{tier="l1"}`))
		body := object{"doc_ids": []string{id}, "task_token_ids": task}
		for name, value := range step.more {
			body[name] = value
		}
		s.inferBody(t, body)
		requested, matched = requested+step.requested, matched+step.matched
		require.InDelta(t, requested, s.counter(t, "daser_cache_requested_tokens_total"), 0, step.name)
		require.InDelta(t, matched, s.counter(t, "daser_cache_matched_tokens_total"), 0, step.name)
		require.InDelta(t, before+step.engine, s.counter(t, `kvproof_store_hit_tokens_total{tier="l1"}`), 0, step.name)
	}
}

// TestSegmentsCountAtTheStart: the checks of prefix and separator are lookups.
func TestSegmentsCountAtTheStart(t *testing.T) {
	s := newStack(t, Chunk, func(p *plan) { p.server.Prefix, p.server.Separator = tokens(1, 2*size), tokens(2, 3) })
	require.InDelta(t, 3*size, s.counter(t, "daser_cache_requested_tokens_total"), 0)
	require.InDelta(t, 2, s.counter(t, `daser_cache_lookup_total{result="miss"}`), 0)
	require.InDelta(t, 2, s.counter(t, "daser_cache_committed_chunks_total"), 0)
}

// TestTiers: L1 holds two documents of three; the third comes from where the
// tiers have it, and the answer is the same.
func TestTiers(t *testing.T) {
	document := int64(4 * 2 * nano().BlockLen(size)) // two blocks
	skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
	prompts := [][]int32{tokens(1, 2*size), tokens(2, 2*size), tokens(3, 2*size)}
	for i := range prompts {
		prompts[i] = append(prompts[i], 9, 9, 9)
	}

	t.Run("L1 alone", func(t *testing.T) {
		s := newStack(t, Chunk, func(p *plan) { p.tiers = tier.Config{L1Bytes: 2*document + 100} })
		ids := []string{}
		for _, p := range prompts {
			ids = append(ids, s.upload(t, p[:2*size]))
		}
		require.InDelta(t, 1, s.counter(t, `daser_cache_evicted_chunks_total{reason="capacity"}`), 0)
		require.Zero(t, s.complete(t, prompts[0], skip).cached)
		require.Equal(t, 2*size, s.complete(t, prompts[1], skip).cached)
		require.InDelta(t, 2*document, s.counter(t, "daser_l1_bytes_used"), 0)
		var shown struct {
			Mask []bool `json:"cached_mask"`
		}
		s.do(t, http.MethodGet, "/documents/"+ids[0], nil, &shown)
		require.Equal(t, []bool{false}, shown.Mask)
		s.upload(t, prompts[0][:2*size])
		require.Equal(t, 2*size, s.complete(t, prompts[0], skip).cached, "uploaded again, stored again")
	})

	t.Run("L1 and L2", func(t *testing.T) {
		s := newStack(t, Chunk, func(p *plan) { p.tiers = tier.Config{L1Bytes: 2*document + 100, L2Dir: t.TempDir()} })
		var cold []outcome
		for _, p := range prompts {
			cold = append(cold, s.complete(t, p, skip))
			s.upload(t, p[:2*size])
		}
		for i, p := range prompts {
			warm := s.complete(t, p, skip)
			require.Equal(t, 2*size, warm.cached)
			requireSame(t, cold[i], warm)
		}
		for series, want := range map[string]float64{
			"daser_l1_hits_total":                                 2,
			"daser_l1_misses_total":                               1,
			`kvproof_store_hit_tokens_total{tier="l1"}`:           2 * 2 * size,
			`kvproof_store_hit_tokens_total{tier="l2"}`:           2 * size,
			`kvproof_store_loaded_bytes_total{tier="l2"}`:         float64(document),
			"daser_store_l2_bytes_used":                           float64(3 * document),
			`daser_cache_evicted_chunks_total{reason="capacity"}`: -1, // nothing is gone
		} {
			require.InDelta(t, want, s.counter(t, series), 0, series)
		}
	})

	t.Run("a document that does not fit", func(t *testing.T) {
		s := newStack(t, Chunk, func(p *plan) { p.tiers = tier.Config{L1Bytes: document - 1} })
		s.refused(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": prompts[0][:2*size]}, http.StatusGatewayTimeout, "nothing is stored")
		require.InDelta(t, 1, s.counter(t, `daser_transfer_operations_total{op="store",status="error"}`), 0)
		s.drain(t)
	})

	t.Run("a prefix loses its tail first", func(t *testing.T) {
		s := newStack(t, Prefix, func(p *plan) { p.tiers = tier.Config{L1Bytes: 2 * document} })
		long := tokens(1, 4*size+1)
		s.complete(t, long, nil)
		s.drain(t)
		s.complete(t, long, nil) // a load keeps that order
		s.complete(t, tokens(2, 2*size), nil)
		s.drain(t)
		require.Equal(t, 2*size, s.complete(t, slices.Clone(long), skip).cached)
	})
}

// TestMetricsAreText: what a scraper gets.
func TestMetricsAreText(t *testing.T) {
	s := newStack(t, Prefix)
	response, err := http.Get(s.url + "/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.True(t, strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4"))
}
