package probe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// fresh is a snapshot of the same process before anything happened: all
// counters at 0, all times as they are.
func fresh(s row.Snapshot) row.Snapshot {
	zero := row.Snapshot{Probe: s.Probe}
	for _, series := range s.Series {
		if series.Name != processStart && !strings.HasSuffix(series.Name, "_created") {
			series.Value = 0
		}
		zero.Series = append(zero.Series, series)
	}
	return zero
}

// with returns s with the values of one metric changed.
func with(s row.Snapshot, name string, change func(float64) float64) row.Snapshot {
	changed := row.Snapshot{Probe: s.Probe}
	for _, series := range s.Series {
		if series.Name == name {
			series.Value = change(series.Value)
		}
		changed.Series = append(changed.Series, series)
	}
	return changed
}

func add(n float64) func(float64) float64 { return func(v float64) float64 { return v + n } }

func TestVLLMCapture(t *testing.T) {
	before := parse(t, read(t, "testdata/vllm-0.32.0-before.txt"))
	after := parse(t, read(t, "testdata/vllm-0.32.0-after.txt"))

	for metric, want := range map[string]float64{
		"vllm:prompt_tokens_total":                      345,
		"vllm:prompt_tokens":                            345,
		"vllm:prefix_cache_hits":                        256,
		"vllm:generation_tokens_total":                  27,
		"vllm:external_prefix_cache_queries_total":      0,
		"vllm:request_success_total":                    5,
		"vllm:request_prefill_kv_computed_tokens_sum":   89,
		"vllm:iteration_tokens_total_sum":               116,
		"http_requests_total":                           5,
		"vllm:prompt_tokens_cached_by_source_total":     256,
		"vllm:time_to_first_token_seconds_count":        5,
		"vllm:request_prefill_kv_computed_tokens_count": 5,
	} {
		got, state := Delta(before, after, metric, nil)
		require.Equal(t, row.Known, state, metric)
		require.InDelta(t, want, got, 1e-9, metric)
	}
	computed, state := Delta(before, after, "vllm:prompt_tokens_by_source", map[string]string{"source": "local_compute"})
	require.Equal(t, row.Known, state)
	require.Equal(t, 89.0, computed)

	want := row.Count{Hits: 256, Queries: 345, HasQueries: true, State: row.Known}
	require.Equal(t, want, VLLMLocal()(before, after))
	require.Equal(t, want, VLLMCached()(before, after))
	require.Equal(t, row.Count{HasQueries: true, State: row.Known}, VLLMExternal()(before, after))
	require.Equal(t, row.Absent, LMCacheLookup()(before, after).State)
	require.Empty(t, Identities(before, after))

	size, ok := BlockSize(after)
	require.True(t, ok)
	require.Equal(t, 32, size)

	shares := Shares(before, after)
	require.InDelta(t, 256.0/345, *shares.Local, 1e-12)
	require.Zero(t, *shares.External)
	require.Nil(t, shares.ExternalOfAsked, "nobody asked: 0/0")
}

func TestHistogramIsNoCounter(t *testing.T) {
	after := parse(t, read(t, "testdata/vllm-0.32.0-after.txt"))
	for _, name := range []string{"vllm:iteration_tokens_total", "vllm:iteration_tokens"} {
		_, ok := Sum(after, name, nil)
		require.False(t, ok, name)
	}
	sum, ok := Sum(after, "vllm:iteration_tokens_total_sum", nil)
	require.True(t, ok)
	require.Equal(t, 7252.0, sum)
	bucket, ok := Sum(after, "vllm:request_num_preemptions_bucket", map[string]string{"le": "1.0"})
	require.True(t, ok)
	require.Equal(t, 84.0, bucket)
}

func TestLMCacheCapture(t *testing.T) {
	engine := parse(t, read(t, "testdata/vllm-0.32.0-lmcache-mp.txt"))
	store := parse(t, read(t, "testdata/lmcache-0.5.6-metrics.txt"))
	require.Equal(t, row.Count{Hits: 6848, Queries: 11648, HasQueries: true, State: row.Known}, LMCacheLookup()(fresh(store), store))
	require.Equal(t, row.Count{Hits: 4796, Queries: 10077, HasQueries: true, State: row.Known}, VLLMExternal()(fresh(engine), engine))
	require.Equal(t, row.Count{Hits: 6908, Queries: 12189, HasQueries: true, State: row.Known}, VLLMCached()(fresh(engine), engine))
	require.Empty(t, Identities(fresh(engine), engine))
	shares := Shares(fresh(engine), engine)
	require.InDelta(t, 1, *shares.Local+*shares.External+*shares.Recomputed, 1e-12)
	require.InDelta(t, 5281.0/12189, *shares.Recomputed, 1e-12)

	var status any
	require.NoError(t, json.Unmarshal([]byte(read(t, "testdata/lmcache-0.5.6-status.json")), &status))
	ratios := HitRatiosWithStatus(
		map[string]row.Snapshot{"engine": fresh(engine), "backend": fresh(store)},
		map[string]row.Snapshot{"engine": engine, "backend": store}, status, status)
	require.Equal(t, "lmcache_prometheus_lookup", ratios.Source)
	require.InDelta(t, 6848.0/11648, *ratios.BackendServerCacheHitRate, 1e-12)
	require.InDelta(t, 4796.0/10077, *ratios.Candidates["vllm_external_prefix"].Rate, 1e-12)
	require.Equal(t, NotExported, ratios.Candidates[statusKey].Reason, "0.5.6 has no hit counters in its status")
}

func TestIdentities(t *testing.T) {
	engine := parse(t, read(t, "testdata/vllm-0.32.0-lmcache-mp.txt"))
	before := fresh(engine)
	for _, c := range []struct {
		name   string
		metric string
		want   []string
	}{
		{"queries counted again", "vllm:prefix_cache_queries_total", []string{"vllm:prefix_cache_queries moved by 12190, but vllm:prompt_tokens by 12189"}},
		{"hits counted again", "vllm:prefix_cache_hits_total", []string{"by_source{local_cache_hit} moved by 2112, but vllm:prefix_cache_hits by 2113", "vllm:external_prefix_cache_queries moved by 10077, but vllm:prompt_tokens − vllm:prefix_cache_hits by 10076"}},
		{"external hits", "vllm:external_prefix_cache_hits_total", []string{"by_source{external_kv_transfer} moved by 4796, but vllm:external_prefix_cache_hits by 4797"}},
		{"external queries", "vllm:external_prefix_cache_queries_total", []string{"vllm:external_prefix_cache_queries moved by 10078, but vllm:prompt_tokens − vllm:prefix_cache_hits by 10077"}},
		{"cached", "vllm:prompt_tokens_cached_total", []string{"vllm:prompt_tokens_cached_by_source moved by 6908, but vllm:prompt_tokens_cached by 6909", "vllm:prompt_tokens_cached moved by 6909, but by_source{local_cache_hit} + by_source{external_kv_transfer} by 6908"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Identities(before, with(engine, c.metric, add(1))))
		})
	}
	t.Run("restart", func(t *testing.T) {
		got := Identities(engine, before)
		require.Len(t, got, 1)
		require.Contains(t, got[0], "started anew")
	})
	t.Run("prefix cache off", func(t *testing.T) {
		off := engine
		for _, name := range []string{"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"} {
			off = with(off, name, func(float64) float64 { return 0 })
		}
		require.Equal(t, []string{"by_source{local_cache_hit} moved by 2112, but vllm:prefix_cache_hits by 0"}, Identities(before, off),
			"queries that stand still are not compared")
	})
	t.Run("nothing exported", func(t *testing.T) {
		require.Empty(t, Identities(parse(t, "up 1\n"), parse(t, "up 1\n")))
	})
}
