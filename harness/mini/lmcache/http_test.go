package lmcache

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// sum is the sum of a counter or gauge over all its label sets; -1: there is
// no such family.
func sum(t *testing.T, s *Server, family string) float64 {
	t.Helper()
	_, page := get(t, s.URL()+"/metrics", nil)
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewBufferString(page))
	require.NoError(t, err)
	if families[family] == nil {
		return -1
	}
	total := 0.0
	for _, m := range families[family].GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

func TestRoutesAreThoseOfTheRelease(t *testing.T) {
	for _, test := range []struct {
		version, config, clear, checksums string
		missing                           []string
	}{
		{"0.5.6", "/config", "/cache/clear", "POST", []string{"/conf", "/clear-cache"}},
		{"0.4.7", "/conf", "/clear-cache", "GET", []string{"/config", "/cache/clear"}},
	} {
		t.Run(test.version, func(t *testing.T) {
			s := serve(t, Config{Version: test.version, ShmName: "kvproof_routes_" + test.version, L1Bytes: 1 << 16})
			code, body := get(t, s.URL()+"/healthcheck", nil)
			require.Equal(t, http.StatusOK, code)
			require.JSONEq(t, `{"status":"healthy"}`, body)
			var version string
			get(t, s.URL()+"/version", &version)
			known, err := wire.ForVersion(version)
			require.NoError(t, err)
			require.Equal(t, s.Dialect(), known)
			var config struct {
				MP struct {
					ChunkSize int    `json:"chunk_size"`
					ShmName   string `json:"shm_name"`
					Workers   int    `json:"max_gpu_workers"`
					Port      int    `json:"port"`
				} `json:"mp"`
			}
			get(t, s.URL()+test.config, &config)
			require.Equal(t, chunk, config.MP.ChunkSize)
			require.Equal(t, "kvproof_routes_"+test.version, config.MP.ShmName)
			require.Equal(t, 1, config.MP.Workers)
			require.Positive(t, config.MP.Port)
			code, body = post(t, s.URL()+test.clear, "", nil)
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, body, `"status":"ok"`)
			for _, path := range test.missing {
				code, body = get(t, s.URL()+path, nil)
				require.Equal(t, http.StatusNotFound, code)
				require.JSONEq(t, `{"detail":"Not Found"}`, body)
			}
		})
	}
}

func TestClearOverHTTP(t *testing.T) {
	s := serve(t, Config{})
	c := connect(t, s, 1)
	c.registerEngine(s, wire.EngineContext{BlockSize: 4, Layers: 1, Hidden: 8, DType: "uint8", MLA: true})
	k := key("a", prompt(1, 2*chunk)...)
	c.write(k, chunkData(1, 32), chunkData(2, 32))
	code, body := post(t, s.URL()+"/cache/clear", `{"tier":"l2"}`, nil)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "tier 'l2' not supported; only 'l1'")

	require.Equal(t, 2, c.lookup(k))
	_, body = post(t, s.URL()+"/cache/clear", `{"tier":"l1","force":false}`, nil)
	require.JSONEq(t, `{"status":"ok","cleared":{"tier":"l1"}}`, body)
	require.NotNil(t, c.read(k), "what is locked stays")
	post(t, s.URL()+"/cache/clear", "", nil)
	require.Zero(t, c.lookup(k))
	require.InDelta(t, 2, sum(t, s, "lmcache_mp_l1_evicted_chunks_total"), 0)
}

func TestChecksums(t *testing.T) {
	s := serve(t, Config{})
	c := connect(t, s, 1)
	c.register("NHD", small)
	var answer struct {
		Status    string   `json:"status"`
		Chunks    int      `json:"num_chunks"`
		Checksums []string `json:"chunk_checksums"`
		Ranges    []any    `json:"block_id_ranges"`
	}
	code, _ := post(t, s.URL()+"/cache/checksums", `{"block_ids":[1,2,3,7,9],"chunk_size":2,"instance_id":1}`, &answer)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "success", answer.Status)
	require.Equal(t, 3, answer.Chunks)
	require.Equal(t, []any{[]any{1.0, 3.0}, 7.0, 9.0}, answer.Ranges)
	const blockBytes = 4 * 16 * 2
	var want []string
	for _, blocks := range [][]int{{1, 2}, {3, 7}, {9}} {
		hash := md5.New()
		for _, layer := range c.layers {
			for plane := range 2 {
				for _, block := range blocks {
					at := (plane*16 + block) * blockBytes
					hash.Write(layer.Bytes()[at : at+blockBytes])
				}
			}
		}
		want = append(want, hex.EncodeToString(hash.Sum(nil)))
	}
	require.Equal(t, want, answer.Checksums)

	var byLayer struct {
		Checksums map[string][]string `json:"chunk_checksums"`
	}
	post(t, s.URL()+"/cache/checksums", `{"block_ids":[1],"chunk_size":1,"instance_id":1,"layerwise":true}`, &byLayer)
	require.Len(t, byLayer.Checksums, 3)
	require.Len(t, byLayer.Checksums["layer_2"], 1)

	for body, status := range map[string]int{
		`{"block_ids":[1],"chunk_size":1,"instance_id":2}`:  http.StatusNotFound,
		`{"block_ids":[],"chunk_size":1,"instance_id":1}`:   http.StatusBadRequest,
		`{"block_ids":[1],"chunk_size":0,"instance_id":1}`:  http.StatusBadRequest,
		`{"block_ids":[16],"chunk_size":1,"instance_id":1}`: http.StatusBadRequest,
		`{`: http.StatusUnprocessableEntity,
	} {
		code, text := post(t, s.URL()+"/cache/checksums", body, nil)
		require.Equal(t, status, code, body)
		require.Contains(t, text, `{"detail":"`)
	}
}

// bfloat16 is hashed as float32, as upstream does it.
func TestChecksumsOfBfloat16(t *testing.T) {
	s := serve(t, Config{Version: "0.5.0"})
	c := connect(t, s, 1)
	c.register("NHD", spec{shape: []int{4, 1, 2}, dtype: "bfloat16", layers: 1, tokens: 1})
	copy(c.layers[0].Bytes(), []byte{0x80, 0x3f, 0x00, 0xc0}) // 1, -2
	var answer struct {
		Checksums []string `json:"chunk_checksums"`
	}
	code, _ := get(t, s.URL()+"/kvcache/check?block_ids=0&chunk_size=1&instance_id=1&layerwise=false", &answer)
	require.Equal(t, http.StatusOK, code)
	want := md5.Sum([]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})
	require.Equal(t, []string{hex.EncodeToString(want[:])}, answer.Checksums)
	code, _ = get(t, s.URL()+"/kvcache/check?block_ids=x", nil)
	require.Equal(t, http.StatusBadRequest, code)
}

// Counters move when the result of a lookup is asked for, not before.
func TestCounters(t *testing.T) {
	s := serve(t, Config{})
	c := connect(t, s, 1)
	k := key("a", prompt(1, 3*chunk+2)...)
	require.Zero(t, c.lookup(k), "nobody has registered")
	require.InDelta(t, 1, sum(t, s, "lmcache_mp_lookup_early_exit_requests_total"), 0)
	require.InDelta(t, 0, sum(t, s, "lmcache_mp_lookup_requested_tokens_total"), 0)

	c.registerEngine(s, wire.EngineContext{BlockSize: 4, Layers: 1, Hidden: 8, DType: "uint8", MLA: true})
	short := key("b", 1, 2)
	require.Zero(t, c.lookup(short))
	require.InDelta(t, 2, sum(t, s, "lmcache_mp_lookup_early_exit_requests_total"), 0)
	require.Equal(t, 3, c.write(k, chunkData(1, 32), chunkData(2, 32), chunkData(3, 32)))

	lookup := k
	lookup.Worker = wire.NoWorker
	c.call(&wire.Lookup{Key: lookup, TPSize: 1}, nil)
	require.InDelta(t, 0, sum(t, s, "lmcache_mp_lookup_requested_tokens_total"), 0)
	require.InDelta(t, 1, sum(t, s, "lmcache_mp_active_prefetch_jobs"), 0)
	var n int
	require.True(t, c.call(&wire.WaitPrefetchStatus{RequestID: "a", Timeout: 1}, &n))
	require.Equal(t, 3, n)
	require.True(t, c.call(&wire.QueryPrefetchStatus{RequestID: "a"}, &n))
	require.Zero(t, n, "consumed")
	for name, want := range map[string]float64{
		"lmcache_mp_lookups_requests_total":           3,
		"lmcache_mp_lookup_requested_tokens_total":    3 * chunk,
		"lmcache_mp_lookup_hit_tokens_total":          3 * chunk,
		"lmcache_mp_lookup_hit_l1_tokens_total":       3 * chunk,
		"lmcache_mp_lookup_hit_l2_tokens_total":       0,
		"lmcache_mp_lookup_hit_l1_keys_total":         3,
		"lmcache_mp_l1_write_chunks_total":            3,
		"lmcache_mp_active_prefetch_jobs":             0,
		"kvproof_store_stored_bytes_total":            96,
		"kvproof_store_loaded_bytes_total":            0,
		"lmcache_mp_l1_memory_usage_bytes":            96,
		"lmcache_mp_num_finished_stores_total":        1,
		"lmcache_mp_num_submitted_retrieves_total":    0,
		"lmcache_mp_l1_evicted_chunks_total":          0,
		"lmcache_mp_l1_allocation_failure_total":      0,
		"lmcache_mp_lookup_early_exit_requests_total": 2,
	} {
		require.InDelta(t, want, sum(t, s, name), 0, name)
	}
	c.read(k)
	require.InDelta(t, 96, sum(t, s, "kvproof_store_loaded_bytes_total"), 0)
	require.InDelta(t, 3, sum(t, s, "lmcache_mp_l1_read_chunks_total"), 0)
}

// Every field that /status has is one that LMCache has, with its type.
func TestStatusIsShapedLikeLMCache(t *testing.T) {
	data, err := os.ReadFile("testdata/lmcache-0.5.6-status.json")
	require.NoError(t, err)
	var want, got map[string]any
	require.NoError(t, json.Unmarshal(data, &want))
	s := serve(t, Config{L1Bytes: 1 << 20})
	c := connect(t, s, 1)
	c.registerEngine(s, mla)
	c.write(key("a", prompt(1, 2*chunk)...), chunkData(1, tiny), chunkData(2, tiny))
	get(t, s.URL()+"/status", &got)
	delete(got["non_cuda_context_meta"].(map[string]any), "1") // others were registered when that was recorded
	requireSubset(t, "", want, got)

	c.register("NHD", small)
	var st status
	get(t, s.URL()+"/status", &st)
	require.Equal(t, chunk, st.ChunkSize)
	require.Equal(t, 2, st.StorageManager.L1.Objects)
	require.Equal(t, int64(2*tiny), st.StorageManager.L1.Used)
	require.Equal(t, [2]int64{2 * tiny, 1 << 20}, st.StorageManager.L1Usage)
	require.Equal(t, []int{1}, st.Engines)
	require.Equal(t, engineMeta{model, 1, 4, true}, st.EnginesMeta["1"])
	require.Equal(t, 16, st.PagedMeta["1"].Layout.Blocks)
	require.Equal(t, []kernelGroup{{0, 0, 3, 4, 4, "float16", false}}, st.PagedMeta["1"].Layout.Groups)
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
