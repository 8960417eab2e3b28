package store

import "github.com/prometheus/client_golang/prometheus"

// l1Tag is the label that LMCache 0.5.6 gives its only L1.
const l1Tag = "_default"

// metrics are the counters of a store. Names, labels and help texts of the
// lmcache_mp_ ones are those observed on LMCache 0.5.6 (without the
// OpenTelemetry scope labels); the kvproof_ ones are our own, because LMCache
// does not count bytes. All start at 0 with the store.
type metrics struct {
	registry                                     *prometheus.Registry
	model                                        string
	requests, requested, hit, hitL1, read, wrote *prometheus.CounterVec
	evictedChunks                                prometheus.Counter
	loadedBytes, storedBytes                     prometheus.Counter
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
	m.read = vec("lmcache_mp_l1_read_chunks_total", "Total chunks read from L1", "cache_salt", "l1_tag")
	m.wrote = vec("lmcache_mp_l1_write_chunks_total", "Total chunks written to L1", "cache_salt", "l1_tag")
	evicted := vec("lmcache_mp_l1_evicted_chunks_total", "Total chunks evicted from L1", "l1_tag")
	m.evictedChunks = evicted.WithLabelValues(l1Tag)

	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	m.loadedBytes = counter("kvproof_store_loaded_bytes_total", "Bytes of KV copied from the store into the engine's blocks")
	m.storedBytes = counter("kvproof_store_stored_bytes_total", "Bytes of KV that became visible in the store")

	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	gauge("lmcache_mp_l1_memory_usage_bytes", "Bytes used in L1", prometheus.Labels{"backend": "dram", "l1_tag": l1Tag},
		func() float64 { return float64(s.state().bytes) })
	// The process outlives a store that is started again in it: what a reader
	// wants to see here is that the counters started anew.
	start := float64(s.started.UnixNano()) / 1e9
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", nil, func() float64 { return start })

	m.lookupSeries("")
	m.read.WithLabelValues("", l1Tag)
	m.wrote.WithLabelValues("", l1Tag)
	return m
}

// lookupSeries makes the lookup counters of a salt exist.
func (m *metrics) lookupSeries(salt string) (requests, requested, hit, hitL1 prometheus.Counter) {
	return m.requests.WithLabelValues(salt, m.model), m.requested.WithLabelValues(salt, m.model),
		m.hit.WithLabelValues(salt, m.model), m.hitL1.WithLabelValues(salt, m.model)
}

func (m *metrics) lookup(salt string, requestedTokens, hitTokens int) {
	requests, requested, hit, hitL1 := m.lookupSeries(salt)
	requests.Inc()
	requested.Add(float64(requestedTokens))
	hit.Add(float64(hitTokens))
	hitL1.Add(float64(hitTokens))
}

func (m *metrics) loaded(salt string, chunks, bytes int) {
	m.read.WithLabelValues(salt, l1Tag).Add(float64(chunks))
	m.loadedBytes.Add(float64(bytes))
}

func (m *metrics) stored(salt string, bytes int64) {
	m.wrote.WithLabelValues(salt, l1Tag).Inc()
	m.storedBytes.Add(float64(bytes))
}

func (m *metrics) evicted(chunks int) { m.evictedChunks.Add(float64(chunks)) }
