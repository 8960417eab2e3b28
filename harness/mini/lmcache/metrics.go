package lmcache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// l1Tag is the label that LMCache 0.5.6 gives its only L1.
const l1Tag = "_default"

// metrics are the counters of a server since its start. Names, labels and help
// texts of the lmcache_mp_ ones are those observed on LMCache 0.5.6 (without
// the OpenTelemetry scope labels), except that the L2 ones were read, not
// seen; the kvproof_ ones are our own, because LMCache does not count bytes.
// As there, a series appears with its first event, except that those of lookups
// are there from a model's first registration on: a reader can then tell that
// nobody asked from that nobody counts.
type metrics struct {
	registry *prometheus.Registry

	requests, requested, hit, hitL1, hitL2      *prometheus.CounterVec
	keysL1, keysL2, earlyExits                  *prometheus.CounterVec
	readChunks, wrote, loadedBytes              *prometheus.CounterVec
	submitted, finished, retrieves, storedBytes prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	lookups := func(name, help string, more ...string) *prometheus.CounterVec {
		return vec("lmcache_mp_lookup"+name, help, append([]string{"cache_salt", "model_name"}, more...)...)
	}
	m.requests = lookups("s_requests_total", "Total lookup requests")
	m.requested = lookups("_requested_tokens_total", "Total tokens submitted for lookup (denominator of the L1+L2 token-level hit rate). Only chunk-aligned tokens are counted.")
	m.hit = lookups("_hit_tokens_total", "Total tokens found by lookup in L1 and L2")
	m.hitL1 = lookups("_hit_l1_tokens_total", "Total tokens found by lookup in L1")
	m.hitL2 = lookups("_hit_l2_tokens_total", "Total tokens found by lookup in L2")
	m.keysL1 = lookups("_hit_l1_keys_total", "Total keys found by lookup in L1")
	m.keysL2 = lookups("_hit_l2_keys_total", "Total keys found by lookup in L2")
	m.earlyExits = lookups("_early_exit_requests_total", "Lookups that ended before anything was looked for", "reason")
	m.readChunks = vec("lmcache_mp_l1_read_chunks_total", "Total chunks read from L1", "cache_salt", "l1_tag")
	m.wrote = vec("lmcache_mp_l1_write_chunks_total", "Total chunks written to L1", "cache_salt", "l1_tag")
	m.loadedBytes = vec("kvproof_store_loaded_bytes_total", "Bytes of KV handed out by retrieves, by the tier that had them", "tier")

	onCPU := func(name, help string) prometheus.Counter {
		return vec(name, help, "device").WithLabelValues("cpu")
	}
	m.submitted = onCPU("lmcache_mp_num_submitted_stores_total", "Total store operations submitted")
	m.finished = onCPU("lmcache_mp_num_finished_stores_total", "Total store operations finished")
	m.retrieves = onCPU("lmcache_mp_num_submitted_retrieves_total", "Total retrieve operations submitted")
	m.storedBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "kvproof_store_stored_bytes_total", Help: "Bytes of KV that became readable"})
	m.registry.MustRegister(m.storedBytes)
	for _, t := range []tier{inL1, inL2} {
		m.loadedBytes.WithLabelValues(t.String())
	}
	m.readChunks.WithLabelValues("", l1Tag)
	m.wrote.WithLabelValues("", l1Tag)
	m.watch(s)
	return m
}

// watch exports what the server knows by itself, read at each scrape.
func (m *metrics) watch(s *Server) {
	tag := prometheus.Labels{"l1_tag": l1Tag}
	dram := prometheus.Labels{"backend": "dram", "l1_tag": l1Tag}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	counter := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	count := func(of func(objectStats) int64) func() float64 {
		return func() float64 { return float64(of(s.objects.stats())) }
	}
	counter("lmcache_mp_l1_evicted_chunks_total", "Total chunks evicted from L1", tag, count(func(o objectStats) int64 { return o.evicted }))
	counter("lmcache_mp_l1_allocation_failure_total", "Chunks for which L1 had no room", tag, count(func(o objectStats) int64 { return o.refused }))
	gauge("lmcache_mp_l1_memory_usage_bytes", "Bytes used in L1", dram, count(objectStats.memory))
	gauge("lmcache_mp_l1_usage_ratio", "L1 used/total ratio (0.0–1.0)", dram, func() float64 {
		return float64(s.objects.stats().memory()) / float64(s.config.L1Bytes)
	})
	gauge("lmcache_mp_l2_usage_bytes", "Bytes used in L2", nil, count(func(o objectStats) int64 { return o.l2Bytes }))
	gauge("lmcache_mp_active_prefetch_jobs", "Number of active prefetch jobs", nil, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.lookups))
	})
	counter("kvproof_store_l2_evicted_chunks_total", "Chunks that left L2 for want of room", nil, count(func(o objectStats) int64 { return o.l2Evicted }))
	counter("kvproof_store_failed_chunks_total", "Chunks that L2 failed to keep or to give", nil, count(func(o objectStats) int64 { return o.failed }))
	// The process outlives a server that is started again in it: what a reader
	// wants to see here is that the counters started anew.
	start := float64(time.Now().UnixNano()) / 1e9
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", nil, func() float64 { return start })
}

// registered makes the series of a model's lookups exist.
func (m *metrics) registered(model string) {
	for _, v := range []*prometheus.CounterVec{m.requests, m.requested, m.hit, m.hitL1, m.hitL2} {
		v.WithLabelValues("", model)
	}
}

// lookedUp counts a lookup whose result was asked for.
func (m *metrics) lookedUp(l *lookup, chunk int) {
	add := func(v *prometheus.CounterVec, n int) { v.WithLabelValues(l.salt, l.model).Add(float64(n)) }
	if l.earlyExit != "" {
		m.earlyExits.WithLabelValues(l.salt, l.model, l.earlyExit).Inc()
	}
	add(m.requests, 1)
	add(m.requested, l.requested*chunk)
	add(m.hit, l.chunks*chunk)
	add(m.hitL1, l.l1*chunk)
	add(m.hitL2, (l.chunks-l.l1)*chunk)
	add(m.keysL1, l.l1*l.keys)
	add(m.keysL2, (l.chunks-l.l1)*l.keys)
}

// read counts objects that a client was given.
func (m *metrics) read(salt string, objects []*object) {
	for _, x := range objects {
		from := inL1
		if x.fromL2 {
			from = inL2
		} else {
			m.readChunks.WithLabelValues(salt, l1Tag).Inc()
		}
		m.loadedBytes.WithLabelValues(from.String()).Add(float64(len(x.place.data)))
	}
}

// stored counts objects that became readable.
func (m *metrics) stored(salt string, fresh []*object) {
	m.finished.Inc()
	for _, x := range fresh {
		if x != nil {
			m.wrote.WithLabelValues(salt, l1Tag).Inc()
			m.storedBytes.Add(float64(len(x.place.data)))
		}
	}
}
