package run_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// Where no counter of tokens is exported the hit rate is taken from the cache
// server's status, and the counters of requests stay in the record.
func TestHitRateFromStatus(t *testing.T) {
	page := func(text string, lookups float64) map[string]row.Snapshot {
		var status any
		require.NoError(t, json.Unmarshal([]byte(text), &status))
		return map[string]row.Snapshot{"backend": {
			Probe: "backend", Status: status,
			Series: []row.Series{{Name: "lmcache_mp_lookups_requests_total", Value: lookups}},
		}}
	}
	before := page(`{"storage_manager":{"prefetch_controller":{"total_hit_tokens":10,"total_requested_tokens":100}}}`, 4)
	after := page(`{"storage_manager":{"prefetch_controller":{"total_hit_tokens":40,"total_requested_tokens":200}}}`, 9)
	metrics, ratios := run.Metrics(before, after)
	require.Equal(t, "lmcache_status_prefetch", ratios.Source)
	require.NotNil(t, ratios.BackendServerCacheHitRate)
	require.InDelta(t, 0.3, *ratios.BackendServerCacheHitRate, 1e-12)
	require.Equal(t, map[string]float64{"lmcache_mp_lookups_requests_total": 5}, metrics.Backend)
	require.Equal(t, after["backend"].Status, metrics.Status)

	_, ratios = run.Metrics(page(`{}`, 4), page(`{}`, 9))
	require.Nil(t, ratios.BackendServerCacheHitRate, "unknown, not 0")
}
