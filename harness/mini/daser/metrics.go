package daser

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// Values of labels.
const (
	opStore    = "store"
	opLoad     = "load"
	onDemand   = "explicit" // reason of an eviction
	byCapacity = "capacity"
	transfer   = "memory" // where DaseR says iouring or gds
)

// metrics are DaseR's, under its names. Counters and histograms appear with
// their first use, so that what is absent has not happened yet; gauges are
// always there. Those of the IPC are missing with the IPC. The two kvproof_
// ones are our own: DaseR does not tell hits and bytes of its tiers apart.
type metrics struct {
	registry                          *prometheus.Registry
	lookups, requested, matched       *prometheus.CounterVec
	reuse                             *prometheus.HistogramVec
	commits, lateEvictions, evictions *prometheus.CounterVec
	queries, hits                     *prometheus.CounterVec
	operations, bytes                 *prometheus.CounterVec
	duration, chunkSize               *prometheus.HistogramVec
	l1Hits, l1Misses                  *prometheus.CounterVec
	tierTokens, tierBytes             *prometheus.CounterVec
	engineHealth                      *prometheus.GaugeVec
}

func newMetrics(s *Store) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.lookups = counter("daser_cache_lookup_total", "Core lookups, /infer's own among them, by result", "result")
	m.requested = counter("daser_cache_requested_tokens_total", "Tokens of the prompts that were looked up")
	m.matched = counter("daser_cache_matched_tokens_total", "Tokens of the chunks that lookups found")
	m.reuse = histogram("daser_cache_prefix_reuse_tokens", "Tokens that a lookup found, of those that found any",
		[]float64{16, 64, 128, 256, 512, 1024, 2048, 4096})
	m.commits = counter("daser_cache_committed_chunks_total", "Chunks that became visible")
	m.lateEvictions = counter("daser_cache_late_evicted_commits_total", "Chunks that were evicted before their commit came")
	m.evictions = counter("daser_cache_evicted_chunks_total", "Chunks that were evicted", "reason")
	m.queries = counter("daser_external_prefix_cache_queries_total", "Prompt tokens that the engine asked for")
	m.hits = counter("daser_external_prefix_cache_hits_total", "Prompt tokens that the engine was promised")
	m.operations = counter("daser_transfer_operations_total", "Transfers between engine and store", "op", "status")
	m.bytes = counter("daser_transfer_bytes_total", "Bytes transferred", "op")
	m.duration = histogram("daser_transfer_duration_seconds", "Time of one transfer", prometheus.ExponentialBuckets(1e-5, 4, 10), "op")
	m.chunkSize = histogram("daser_transfer_chunk_size_bytes", "Bytes of one chunk in a transfer", prometheus.ExponentialBuckets(4096, 4, 10), "op")
	m.l1Hits = counter("daser_l1_hits_total", "Chunks that were loaded from L1")
	m.l1Misses = counter("daser_l1_misses_total", "Chunks that were loaded, but not from L1")
	m.tierTokens = counter("kvproof_store_hit_tokens_total", "Tokens that the engine's lookups found, by the tier that held them then", "tier")
	m.tierBytes = counter("kvproof_store_loaded_bytes_total", "Bytes of whole chunks read for loads, by tier", "tier")
	m.gauges(s)
	return m
}

func (m *metrics) gauges(s *Store) {
	m.engineHealth = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "daser_vllm_health_up", Help: "Whether the engine answered the last /health"}, nil)
	m.registry.MustRegister(m.engineHealth)
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	one := func() float64 { return 1 }
	gauge("daser_up", "1 while the server runs", nil, one)
	gauge("daser_info", "What the server was started with", prometheus.Labels{"mode": string(s.cfg.Mode), "transfer": transfer}, one)
	gauge("daser_l1_bytes_used", "Bytes in L1", nil, func() float64 { return float64(s.objects.Stats().L1.Bytes) })
	gauge("daser_l1_bytes_capacity", "Bytes that L1 can hold", nil, func() float64 { return float64(s.objects.Stats().L1.Capacity) })
	gauge("daser_store_l2_bytes_used", "Bytes in L2", nil, func() float64 { return float64(s.objects.Stats().L2.Bytes) })
	gauge("daser_store_l2_bytes_capacity", "Bytes that L2 can hold; 0 without an L2 or a bound", nil, func() float64 { return float64(s.objects.Stats().L2.Capacity) })
	start := float64(time.Now().UnixNano()) / 1e9
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", nil, func() float64 { return start })
}

func (m *metrics) lookup(requested, matched int) {
	result := "miss"
	if matched > 0 {
		result = "hit"
		m.reuse.WithLabelValues().Observe(float64(matched))
	}
	m.lookups.WithLabelValues(result).Inc()
	m.requested.WithLabelValues().Add(float64(requested))
	m.matched.WithLabelValues().Add(float64(matched))
}

func (m *metrics) external(queries, hits int) {
	m.queries.WithLabelValues().Add(float64(queries))
	m.hits.WithLabelValues().Add(float64(max(0, hits)))
}

func (m *metrics) hitTokens(t tier.Tier, tokens int) {
	m.tierTokens.WithLabelValues(t.String()).Add(float64(tokens))
}

func (m *metrics) loaded(t tier.Tier, bytes int) {
	if t == tier.L1 {
		m.l1Hits.WithLabelValues().Inc()
	} else {
		m.l1Misses.WithLabelValues().Inc()
	}
	m.tierBytes.WithLabelValues(t.String()).Add(float64(bytes))
}

func (m *metrics) committed()   { m.commits.WithLabelValues().Inc() }
func (m *metrics) lateEvicted() { m.lateEvictions.WithLabelValues().Inc() }

func (m *metrics) evicted(reason string, chunks int) {
	m.evictions.WithLabelValues(reason).Add(float64(chunks))
}

func (m *metrics) transferred(op string, ok bool, bytes int, took time.Duration) {
	status := "ok"
	if !ok {
		status = "error"
	}
	m.operations.WithLabelValues(op, status).Inc()
	m.bytes.WithLabelValues(op).Add(float64(bytes))
	m.duration.WithLabelValues(op).Observe(took.Seconds())
}

func (m *metrics) chunkMoved(op string, bytes int) {
	m.chunkSize.WithLabelValues(op).Observe(float64(bytes))
}
