package store

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

func get(t *testing.T, s *Store, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(body)
}

// scrape returns the values of the series of a family, summed by cache_salt.
func scrape(t *testing.T, s *Store, family string) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	require.Contains(t, families, family)
	values := map[string]float64{}
	for _, m := range families[family].GetMetric() {
		salt := ""
		for _, l := range m.GetLabel() {
			switch l.GetName() {
			case "cache_salt":
				salt = l.GetValue()
			case "model_name":
				require.Equal(t, "mini", l.GetValue())
			}
		}
		values[salt] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

func TestCounters(t *testing.T) {
	s := open(t, config(8, 3))
	zero := map[string]float64{"": 0}
	counters := []string{
		"lmcache_mp_lookups_requests_total", "lmcache_mp_lookup_requested_tokens_total", "lmcache_mp_lookup_hit_tokens_total",
		"lmcache_mp_lookup_hit_l1_tokens_total", "lmcache_mp_lookup_hit_l2_tokens_total", "lmcache_mp_l1_read_chunks_total", "lmcache_mp_l1_write_chunks_total",
		"lmcache_mp_l1_evicted_chunks_total", "kvproof_store_loaded_bytes_total", "kvproof_store_stored_bytes_total",
		"kvproof_store_failed_chunks_total", "kvproof_store_l2_evicted_chunks_total", "lmcache_mp_l2_usage_bytes",
	}
	for _, name := range counters {
		require.Equal(t, zero, scrape(t, s, name), "%s at the start", name)
	}
	require.Positive(t, scrape(t, s, "process_start_time_seconds")[""])

	r, salted := kv.Request{Tokens: prompt(10, 23)}, kv.Request{Tokens: prompt(10, 9), Salt: "a"}
	require.Zero(t, lookup(t, s, r))
	put(t, s, r, paged(0, 23))
	require.Equal(t, 16, lookup(t, s, r))
	require.NoError(t, s.Load(t.Context(), r, 16, empty(23)))
	require.Zero(t, lookup(t, s, salted))
	require.Zero(t, lookup(t, s, kv.Request{Tokens: prompt(10, 7)}), "less than a chunk asks for nothing")

	require.Equal(t, map[string]float64{"": 32, "a": 8}, scrape(t, s, "lmcache_mp_lookup_requested_tokens_total"))
	require.Equal(t, map[string]float64{"": 16, "a": 0}, scrape(t, s, "lmcache_mp_lookup_hit_tokens_total"))
	require.Equal(t, map[string]float64{"": 3, "a": 1}, scrape(t, s, "lmcache_mp_lookups_requests_total"))
	require.Equal(t, map[string]float64{"": 2}, scrape(t, s, "lmcache_mp_l1_read_chunks_total"))
	require.Equal(t, map[string]float64{"": 2}, scrape(t, s, "lmcache_mp_l1_write_chunks_total"))
	bytesPerToken := 4.0 * blockLen / blockSize
	require.Equal(t, map[string]float64{"": 16 * bytesPerToken}, scrape(t, s, "kvproof_store_loaded_bytes_total"))
	require.Equal(t, map[string]float64{"": 16 * bytesPerToken}, scrape(t, s, "kvproof_store_stored_bytes_total"))
	require.Equal(t, map[string]float64{"": 16 * bytesPerToken}, scrape(t, s, "lmcache_mp_l1_memory_usage_bytes"))

	put(t, s, kv.Request{Tokens: prompt(50, 16)}, paged(0, 16))
	require.Equal(t, only(1), scrape(t, s, "lmcache_mp_l1_evicted_chunks_total"))
	require.NoError(t, s.Reset(t.Context()))
	require.Equal(t, only(4), scrape(t, s, "lmcache_mp_l1_evicted_chunks_total"), "a reset counts as eviction")
}

func only(v float64) map[string]float64 { return map[string]float64{"": v} }

// Every field that our /status has is one that LMCache has, with its type.
func TestStatusIsShapedLikeLMCache(t *testing.T) {
	data, err := os.ReadFile("testdata/lmcache-0.5.6-status.json")
	require.NoError(t, err)
	var want, got map[string]any
	require.NoError(t, json.Unmarshal(data, &want))
	s := open(t, config(8, 10))
	put(t, s, kv.Request{Tokens: prompt(10, 16)}, paged(0, 16))
	code, body := get(t, s, "/status")
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	requireSubset(t, "", want, got)

	st := s.status()
	require.Equal(t, 8, st.ChunkSize)
	require.Equal(t, 2, st.StorageManager.L1.Objects)
	require.Equal(t, 2*s.ChunkBytes(), st.StorageManager.L1.Used)
	require.Equal(t, 10*s.ChunkBytes(), st.StorageManager.L1Usage[1])
}

func requireSubset(t *testing.T, path string, want, got map[string]any) {
	t.Helper()
	for name, g := range got {
		require.Contains(t, want, name, "at %s", path)
		require.IsType(t, want[name], g, "%s/%s", path, name)
		if inner, ok := g.(map[string]any); ok {
			requireSubset(t, path+"/"+name, want[name].(map[string]any), inner)
		}
	}
}

func TestHealth(t *testing.T) {
	s := open(t, config(8, 10))
	code, body := get(t, s, "/healthcheck")
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, `{"status":"healthy"}`, body)
	code, body = get(t, s, "/nope")
	require.Equal(t, http.StatusNotFound, code)
	require.JSONEq(t, `{"detail":"Not Found"}`, body)
	require.NoError(t, s.Close())
	code, _ = get(t, s, "/healthcheck")
	require.Equal(t, http.StatusServiceUnavailable, code)
}
