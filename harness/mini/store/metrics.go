package store

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// l1Tag is the label that LMCache 0.5.6 gives its only L1.
const l1Tag = "_default"

// metrics are the counters of a store. Names, labels and help texts of the
// lmcache_mp_ ones are those observed on LMCache 0.5.6 (without the
// OpenTelemetry scope labels), except that the L2 ones were read, not seen;
// the kvproof_ ones are our own, because LMCache does not count bytes. All
// start at 0 with the store.
type metrics struct {
	registry                               *prometheus.Registry
	model                                  string
	requests, requested, hit, hitL1, hitL2 *prometheus.CounterVec
	readChunks, wrote, loadedBytes         *prometheus.CounterVec
	storedBytes, failedChunks              prometheus.Counter
}

func newMetrics(s *Store) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), model: s.cfg.ModelName}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.requests = vec("lmcache_mp_lookups_requests_total", "Total lookup requests", "cache_salt", "model_name")
	m.requested = vec("lmcache_mp_lookup_requested_tokens_total", "Total tokens submitted for lookup (denominator of the L1+L2 token-level hit rate). Only chunk-aligned tokens are counted.", "cache_salt", "model_name")
	m.hit = vec("lmcache_mp_lookup_hit_tokens_total", "Total tokens found by lookup in L1 and L2", "cache_salt", "model_name")
	m.hitL1 = vec("lmcache_mp_lookup_hit_l1_tokens_total", "Total tokens found by lookup in L1", "cache_salt", "model_name")
	m.hitL2 = vec("lmcache_mp_lookup_hit_l2_tokens_total", "Total tokens found by lookup in L2", "cache_salt", "model_name")
	m.readChunks = vec("lmcache_mp_l1_read_chunks_total", "Total chunks read from L1", "cache_salt", "l1_tag")
	m.wrote = vec("lmcache_mp_l1_write_chunks_total", "Total chunks written to L1", "cache_salt", "l1_tag")
	m.loadedBytes = vec("kvproof_store_loaded_bytes_total", "Bytes of KV copied from a tier of the store into the engine's blocks", "tier")

	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	m.storedBytes = counter("kvproof_store_stored_bytes_total", "Bytes of KV that became visible in the store")
	m.failedChunks = counter("kvproof_store_failed_chunks_total", "Chunks that were acknowledged and could not be stored")
	m.watch(s)

	m.lookupSeries("")
	m.readChunks.WithLabelValues("", l1Tag)
	m.wrote.WithLabelValues("", l1Tag)
	m.loaded(tier.L1, 0)
	m.loaded(tier.L2, 0)
	return m
}

// watch exports what the store knows by itself, read at each scrape.
func (m *metrics) watch(s *Store) {
	tag := prometheus.Labels{"l1_tag": l1Tag}
	l1 := prometheus.Labels{"backend": "dram", "l1_tag": l1Tag}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	counter := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	counter("lmcache_mp_l1_evicted_chunks_total", "Total chunks evicted from L1", tag, func() float64 {
		st := s.state()
		return float64(st.L1.Evictions) + float64(st.dropped)
	})
	gauge("lmcache_mp_l1_memory_usage_bytes", "Bytes used in L1", l1, func() float64 { return float64(s.state().L1.Bytes) })
	gauge("lmcache_mp_l1_usage_ratio", "L1 used/total ratio (0.0–1.0)", l1, func() float64 { return float64(s.state().L1.Bytes) / float64(s.cfg.Capacity) })
	gauge("lmcache_mp_l2_usage_bytes", "Bytes used in L2", nil, func() float64 { return float64(s.state().L2.Bytes) })
	counter("kvproof_store_l2_evicted_chunks_total", "Chunks that left L2 for want of room", nil, func() float64 { return float64(s.state().L2.Evictions) })
	// The process outlives a store that is started again in it: what a reader
	// wants to see here is that the counters started anew.
	start := float64(s.started.UnixNano()) / 1e9
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", nil, func() float64 { return start })
}

// lookupSeries makes the lookup counters of a salt exist.
func (m *metrics) lookupSeries(salt string) (requests, requested, hit, hitL1, hitL2 prometheus.Counter) {
	return m.requests.WithLabelValues(salt, m.model), m.requested.WithLabelValues(salt, m.model),
		m.hit.WithLabelValues(salt, m.model), m.hitL1.WithLabelValues(salt, m.model), m.hitL2.WithLabelValues(salt, m.model)
}

func (m *metrics) lookup(salt string, requestedTokens, l1Tokens, l2Tokens int) {
	requests, requested, hit, hitL1, hitL2 := m.lookupSeries(salt)
	requests.Inc()
	requested.Add(float64(requestedTokens))
	hit.Add(float64(l1Tokens + l2Tokens))
	hitL1.Add(float64(l1Tokens))
	hitL2.Add(float64(l2Tokens))
}

// read counts a chunk that was read from a tier.
func (m *metrics) read(salt string, from tier.Tier) {
	if from == tier.L1 {
		m.readChunks.WithLabelValues(salt, l1Tag).Inc()
	}
}

func (m *metrics) loaded(from tier.Tier, bytes int) {
	m.loadedBytes.WithLabelValues(from.String()).Add(float64(bytes))
}

func (m *metrics) stored(salt string, bytes int64) {
	m.wrote.WithLabelValues(salt, l1Tag).Inc()
	m.storedBytes.Add(float64(bytes))
}
