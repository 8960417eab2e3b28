package store

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

// tiered is a store whose L1 holds up to 8 of its 10 chunks of 4 tokens, and
// after an eviction 6, with an L2 behind it.
func tiered(t *testing.T) *Store {
	cfg := config(4, 10)
	cfg.Watermark, cfg.Ratio, cfg.L2Dir = 0, 0, t.TempDir()
	return open(t, cfg)
}

// byTier returns the loaded bytes of each tier.
func byTier(t *testing.T, s *Store) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	values := map[string]float64{}
	for _, m := range families["kvproof_store_loaded_bytes_total"].GetMetric() {
		require.Len(t, m.GetLabel(), 1)
		require.Equal(t, "tier", m.GetLabel()[0].GetName())
		values[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	return values
}

func TestHitsByTier(t *testing.T) {
	s := tiered(t)
	old, recent := kv.Request{Tokens: prompt(10, 20), Salt: "a"}, kv.Request{Tokens: prompt(50, 17)}
	put(t, s, old, paged(0, 20))    // 5 chunks
	put(t, s, recent, paged(1, 17)) // 4 more: the ninth evicts the three last of old
	require.Equal(t, only(3), scrape(t, s, "lmcache_mp_l1_evicted_chunks_total"))
	require.Equal(t, 6, s.state().L1.Objects)
	require.Equal(t, 9, s.state().L2.Objects)

	require.Equal(t, 20, lookup(t, s, old))
	require.Equal(t, 16, lookup(t, s, recent))
	hits := func(tier string) map[string]float64 {
		return scrape(t, s, "lmcache_mp_lookup_hit"+tier+"_tokens_total")
	}
	require.Equal(t, map[string]float64{"a": 20, "": 16}, hits(""))
	require.Equal(t, map[string]float64{"a": 8, "": 16}, hits("_l1"))
	require.Equal(t, map[string]float64{"a": 12, "": 0}, hits("_l2"))

	dst := empty(20)
	require.NoError(t, s.Load(t.Context(), old, 19, dst))
	require.Equal(t, paged(0, 20), dst, "the KV is the same wherever it was")
	chunk := float64(s.ChunkBytes())
	require.Equal(t, map[string]float64{"l1": 2 * chunk, "l2": 3 * chunk}, byTier(t, s))
	require.Equal(t, map[string]float64{"a": 2, "": 0}, scrape(t, s, "lmcache_mp_l1_read_chunks_total"))
	require.Equal(t, only(6*chunk), scrape(t, s, "lmcache_mp_l1_memory_usage_bytes"))
	require.Equal(t, only(9*chunk), scrape(t, s, "lmcache_mp_l2_usage_bytes"))
	require.Equal(t, only(0.6), scrape(t, s, "lmcache_mp_l1_usage_ratio"))

	require.Equal(t, 20, lookup(t, s, old))
	require.Equal(t, 24.0, hits("_l2")["a"], "a read from L2 leaves it there")

	put(t, s, old, paged(7, 20))
	require.Equal(t, 20, lookup(t, s, old))
	require.Equal(t, 36.0, hits("_l2")["a"], "what L2 has is not stored again")
}

func TestStatusShowsTheTiers(t *testing.T) {
	st := tiered(t).status().StorageManager
	require.Equal(t, 1, st.Adapters)
	require.Equal(t, "LRU", st.Eviction.Policy)
	require.Equal(t, []float64{0.8, 0.2}, []float64{st.Eviction.Watermark, st.Eviction.Ratio})
	require.Zero(t, open(t, config(4, 10)).status().StorageManager.Adapters)
}

// The order in which a stored prompt's chunks become the most recent ones,
// also where part of it was there before.
func TestOrderOfUse(t *testing.T) {
	s := tiered(t)
	first := kv.Request{Tokens: prompt(10, 12)}                             // 3 chunks
	other := kv.Request{Tokens: prompt(50, 16)}                             // 4 chunks
	longer := kv.Request{Tokens: append(prompt(10, 12), prompt(200, 8)...)} // 2 more behind first
	put(t, s, first, paged(0, 12))
	put(t, s, other, paged(0, 16))
	put(t, s, longer, paged(0, 20)) // the last put is the ninth: three go
	lookup(t, s, longer)
	require.Equal(t, only(20), scrape(t, s, "lmcache_mp_lookup_hit_l1_tokens_total"), "its first chunks were used again before the others were put")
	lookup(t, s, other)
	require.Equal(t, only(20+4), scrape(t, s, "lmcache_mp_lookup_hit_l1_tokens_total"), "other is older: its tail went")
	require.Equal(t, only(12), scrape(t, s, "lmcache_mp_lookup_hit_l2_tokens_total"))
}

func TestResetEmptiesBothTiers(t *testing.T) {
	s := tiered(t)
	r := kv.Request{Tokens: prompt(10, 40)}
	put(t, s, r, paged(0, 40))
	require.Len(t, s.Chunks(), 10)
	require.NoError(t, s.Reset(t.Context()))
	require.Zero(t, lookup(t, s, r))
	require.Empty(t, s.Chunks())
	require.Zero(t, s.state().L2.Bytes)
	require.Equal(t, only(10), scrape(t, s, "lmcache_mp_l1_evicted_chunks_total"), "three for room, seven by the reset")
}

func TestDamageReachesL2(t *testing.T) {
	s := tiered(t)
	r := kv.Request{Tokens: prompt(10, 40), Salt: "x"}
	put(t, s, r, paged(1, 40))
	for i, info := range s.Chunks() {
		require.Equal(t, "x", info.Salt)
		_, err := s.FlipByte(i, 3)
		require.NoError(t, err)
	}
	dst := empty(40)
	require.NoError(t, s.Load(t.Context(), r, 40, dst))
	want := paged(1, 40)
	for i := range want {
		require.Equal(t, differingValues(want[i], dst[i]), []int{0}, "chunk %d", i)
	}
}

func differingValues(want, got []float32) (at []int) {
	for i := range want {
		if want[i] != got[i] {
			at = append(at, i)
		}
	}
	return at
}

func TestDamagedFile(t *testing.T) {
	s := tiered(t)
	r := kv.Request{ID: "r7", Tokens: prompt(10, 40)}
	put(t, s, r, paged(1, 40))
	files, err := filepath.Glob(filepath.Join(s.cfg.L2Dir, "*", "*"))
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		require.NoError(t, os.Truncate(file, 3))
	}
	require.ErrorContains(t, s.Load(t.Context(), r, 40, empty(40)), "loading 40 tokens of request r7: chunk 9: reading object")
	require.NoError(t, s.Close())
	require.NoDirExists(t, filepath.Dir(files[0]))
}

// Where chunks came from is not kept for ever.
func TestOriginsAreForgotten(t *testing.T) {
	s := open(t, config(4, 3))
	for i := range 20 {
		put(t, s, kv.Request{Tokens: prompt(100*i+10, 4)}, paged(0, 4))
		require.LessOrEqual(t, len(s.origins), 6)
	}
	require.Len(t, s.Chunks(), 3)
}
