package probe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// counters is a page of counters with these values.
func counters(values map[string]string) string {
	var b strings.Builder
	for name, value := range values {
		b.WriteString(name + " " + value + "\n")
	}
	return b.String()
}

func TestHitRatiosPrecedence(t *testing.T) {
	all := map[string]string{
		"daser_cache_matched_tokens_total": "10", "daser_cache_requested_tokens_total": "100",
		"lmcache_mp_lookup_hit_tokens_total": "20", "lmcache_mp_lookup_requested_tokens_total": "100",
		"lmcache_interval_hit_tokens_total": "30", "lmcache_interval_requested_tokens_total": "100",
		"vllm:external_prefix_cache_hits_total": "50", "vllm:external_prefix_cache_queries_total": "100",
		"daser_external_prefix_cache_hits_total": "60", "daser_external_prefix_cache_queries_total": "100",
		`daser_cache_lookup_total{result="hit"}`: "7", `daser_cache_lookup_total{result="miss"}`: "3",
	}
	status := decoded(t, `{"storage_manager":{"prefetch_controller":{"hit_tokens":40,"requested_tokens":100}}}`)
	idle := decoded(t, `{"storage_manager":{"prefetch_controller":{"hit_tokens":0,"requested_tokens":0}}}`)
	for _, c := range []struct {
		without string // prefix of the counters left out, on top of those before
		source  string
		rate    float64
	}{
		{"nothing", "daser_prometheus_tokens", 0.1},
		{"daser_cache_matched", "lmcache_prometheus_lookup", 0.2},
		{"lmcache_mp_lookup", "lmcache_prometheus_retrieve", 0.3},
		{"lmcache_interval", "lmcache_status_prefetch", 0.4},
	} {
		for name := range all {
			if strings.HasPrefix(name, c.without) {
				delete(all, name)
			}
		}
		t.Run("without "+c.without, func(t *testing.T) {
			before := map[string]row.Snapshot{"backend": parse(t, "up 1\n")}
			after := map[string]row.Snapshot{"backend": parse(t, counters(all))}
			ratios := HitRatiosWithStatus(before, after, idle, status)
			require.Equal(t, c.source, ratios.Source)
			require.InDelta(t, c.rate, *ratios.BackendServerCacheHitRate, 1e-12)
			require.True(t, ratios.Candidates[c.source].Chosen)
			require.InDelta(t, 0.5, *ratios.Candidates["vllm_external_prefix"].Rate, 1e-12, "kept as a diagnostic")
			require.InDelta(t, 0.7, *ratios.Candidates["daser_prometheus_requests"].Rate, 1e-12, "kept as a diagnostic")
		})
	}
	t.Run("diagnostics only", func(t *testing.T) {
		ratios := HitRatios(map[string]row.Snapshot{"backend": parse(t, "up 1\n")},
			map[string]row.Snapshot{"backend": parse(t, counters(all))})
		require.Nil(t, ratios.BackendServerCacheHitRate, "requests and the engine's view are no backend hit rate")
		require.Empty(t, ratios.Source)
		require.Len(t, ratios.Candidates, 7)
	})
}

func TestHitRatiosRawRecord(t *testing.T) {
	page := func(page string) map[string]row.Snapshot { return map[string]row.Snapshot{"backend": parse(t, page)} }
	const lookup = "lmcache_prometheus_lookup"
	for _, c := range []struct {
		name          string
		before, after string
		key           string
		want          string // of the candidate, as JSON
		backend       *float64
	}{
		{
			"token pair", "up 1\n", "lmcache_mp_lookup_hit_tokens_total{cache_salt=\"a\"} 64\nlmcache_mp_lookup_hit_tokens_total{cache_salt=\"b\"} 64\nlmcache_mp_lookup_requested_tokens_total 256\n", lookup,
			`{"numerator":128,"denominator":256,"ratio":0.5,"numerator_name":"lmcache_mp_lookup_hit_tokens_total","denominator_name":"lmcache_mp_lookup_requested_tokens_total","level":"tokens","probe":"backend","chosen":true}`, ptr(0.5),
		},
		{
			"second pair may count requests", "up 1\n", "lmcache_mp_lookup_hit_total 3\nlmcache_mp_lookup_requested_total 4\n", lookup,
			`{"numerator":3,"denominator":4,"ratio":0.75,"numerator_name":"lmcache_mp_lookup_hit_total","denominator_name":"lmcache_mp_lookup_requested_total","level":"unproven","probe":"backend"}`, nil,
		},
		{
			"third pair where the first stands still", "lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\n", "lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\nlmcache_num_hit_tokens_total 1\nlmcache_num_requested_tokens_total 4\n", lookup,
			`{"numerator":1,"denominator":4,"ratio":0.25,"numerator_name":"lmcache_num_hit_tokens_total","denominator_name":"lmcache_num_requested_tokens_total","level":"tokens","probe":"backend","chosen":true}`, ptr(0.25),
		},
		{
			"0/0", "lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\n", "lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\n", lookup,
			`{"numerator":0,"denominator":0,"ratio":null,"numerator_name":"lmcache_mp_lookup_hit_tokens_total","denominator_name":"lmcache_mp_lookup_requested_tokens_total","level":"tokens","probe":"backend","reason":"no_queries"}`, nil,
		},
		{
			"restart is not the value after it", "daser_cache_matched_tokens_total 500\ndaser_cache_requested_tokens_total 900\n", "daser_cache_matched_tokens_total 5\ndaser_cache_requested_tokens_total 9\n", "daser_prometheus_tokens",
			`{"numerator":null,"denominator":null,"ratio":null,"numerator_name":"daser_cache_matched_tokens_total","denominator_name":"daser_cache_requested_tokens_total","level":"tokens","probe":"backend","reason":"counter_reset"}`, nil,
		},
		{
			"hits not exported", "up 1\n", "daser_cache_requested_tokens_total 9\n", "daser_prometheus_tokens",
			`{"numerator":null,"denominator":9,"ratio":null,"numerator_name":"daser_cache_matched_tokens_total","denominator_name":"daser_cache_requested_tokens_total","level":"tokens","probe":"backend","reason":"absent"}`, nil,
		},
		{
			"more hits than queries", "up 1\n", "daser_cache_matched_tokens_total 10\ndaser_cache_requested_tokens_total 9\n", "daser_prometheus_tokens",
			`{"numerator":10,"denominator":9,"ratio":null,"numerator_name":"daser_cache_matched_tokens_total","denominator_name":"daser_cache_requested_tokens_total","level":"tokens","probe":"backend","reason":"impossible"}`, nil,
		},
		{
			"no lookup has hit yet", "up 1\n", "daser_cache_lookup_total{result=\"miss\"} 4\n", "daser_prometheus_requests",
			`{"numerator":0,"denominator":4,"ratio":0,"numerator_name":"daser_cache_lookup_total","denominator_name":"daser_cache_lookup_total","level":"requests","probe":"backend"}`, nil,
		},
		{
			"nothing exported", "up 1\n", "up 1\n", lookup,
			`{"numerator":null,"denominator":null,"ratio":null,"numerator_name":"lmcache_mp_lookup_hit_tokens_total","denominator_name":"lmcache_mp_lookup_requested_tokens_total","level":"tokens","reason":"absent"}`, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ratios := HitRatios(page(c.before), page(c.after))
			text, err := json.Marshal(ratios)
			require.NoError(t, err)
			var byKey map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(text, &byKey))
			require.Len(t, byKey, 7)
			require.JSONEq(t, c.want, string(byKey[c.key]))
			require.Equal(t, c.backend, ratios.BackendServerCacheHitRate)
		})
	}
}

func TestHitRatiosOnePage(t *testing.T) {
	const counter = "daser_cache_matched_tokens_total 5\ndaser_cache_requested_tokens_total 10\n"
	after := map[string]row.Snapshot{"backend": parse(t, counter), "mirror": parse(t, counter)}
	before := map[string]row.Snapshot{"backend": parse(t, "up 1\n"), "mirror": parse(t, "up 1\n")}
	require.Equal(t, 10.0, *HitRatios(before, after).Candidates["daser_prometheus_tokens"].Queries, "counted once")

	unread := HitRatios(map[string]row.Snapshot{}, map[string]row.Snapshot{"backend": parse(t, counter)})
	require.Nil(t, unread.BackendServerCacheHitRate, "without a page before the pass the change is unknown")
}

func TestStatusRatio(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string
		rate          *float64
		reason        Reason
	}{
		{"first field that is there", `{"a":{"prefetch_controller":{"found_tokens":0,"num_requested_tokens":0}}}`, `{"a":{"prefetch_controller":{"found_tokens":3,"num_requested_tokens":4}}}`, ptr(0.75), ""},
		{"earlier names win", `{"prefetch_controller":{"total_hit_tokens":0,"found_tokens":0,"requested_tokens":0}}`, `{"prefetch_controller":{"total_hit_tokens":1,"found_tokens":3,"requested_tokens":4}}`, ptr(0.25), ""},
		{"inside a list", `[{"x":[{"prefetch_controller":{"hit_tokens":1,"requested_tokens":2}}]}]`, `[{"x":[{"prefetch_controller":{"hit_tokens":2,"requested_tokens":4}}]}]`, ptr(0.5), ""},
		{"one without numbers is passed over", `{"a":{"prefetch_controller":{"is_healthy":true}},"b":{"prefetch_controller":{"hit_tokens":0,"requested_tokens":0}}}`, `{"a":{"prefetch_controller":{"is_healthy":true}},"b":{"prefetch_controller":{"hit_tokens":1,"requested_tokens":1}}}`, ptr(1.0), ""},
		{"not numbers", `{"prefetch_controller":{"hit_tokens":true,"requested_tokens":"4"}}`, `{"prefetch_controller":{"hit_tokens":true,"requested_tokens":"4"}}`, nil, NotExported},
		{"restarted", `{"prefetch_controller":{"hit_tokens":9,"requested_tokens":9}}`, `{"prefetch_controller":{"hit_tokens":1,"requested_tokens":9}}`, nil, CounterReset},
		{"not read before", `null`, `{"prefetch_controller":{"hit_tokens":1,"requested_tokens":9}}`, nil, NotExported},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := statusRatio(decoded(t, c.before), decoded(t, c.after))
			require.Equal(t, c.rate, r.Rate)
			require.Equal(t, c.reason, r.Reason)
		})
	}
	t.Run("decoded with UseNumber", func(t *testing.T) {
		page := func(hits string) any {
			return map[string]any{"prefetch_controller": map[string]any{"hit_tokens": json.Number(hits), "requested_tokens": json.Number(hits)}}
		}
		require.Equal(t, ptr(1.0), statusRatio(page("1"), page("5")).Rate)
	})
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

func ptr(f float64) *float64 { return &f }
