package engine

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the series of /metrics: names, types, labels, help texts and
// buckets as observed on vLLM 0.32.0. Without aborts and failures these hold
// exactly: the sources of prompt_tokens_by_source add up to prompt_tokens,
// which equals prefix_cache_queries (counted here even where the engine's own
// cache is off); local_cache_hit equals prefix_cache_hits; external_kv_transfer
// equals external_prefix_cache_hits; the external queries are the prompt tokens
// less the local hits; the sum of cached_tokens of all answers is
// prompt_tokens_cached.
type metrics struct {
	registry *prometheus.Registry
	http     httpMetrics

	flops                            prometheus.Counter
	queries, hits                    prometheus.Counter // of the engine's own cache, in tokens
	externalQueries, externalHits    prometheus.Counter // of the store, in tokens
	prompt, cached, generation       prometheus.Counter
	bySource, cachedBySource         *prometheus.CounterVec
	success                          *prometheus.CounterVec
	loading                          prometheus.Counter // seconds
	promptTokens, generationTokens   prometheus.Observer
	iterationTokens, prefillComputed prometheus.Observer
	maxGeneration, paramN, paramMax  prometheus.Observer
	preemptions                      prometheus.Observer
	ttft, interToken, perToken, e2e  prometheus.Observer
	queueTime, inferenceTime         prometheus.Observer
	prefillTime, decodeTime          prometheus.Observer
}

// The values of label source, as in the captures.
const (
	localCompute = "local_compute"
	localHit     = "local_cache_hit"
	externalHit  = "external_kv_transfer"

	fromDevice   = "device"
	fromExternal = "external_unspecified" // what vLLM books LMCache under
)

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}

// admitted counts a prompt that was looked up in the prefix cache: when it is
// scheduled, so that a request that is cancelled during prefill counts too.
func (m *metrics) admitted(prompt, local int) {
	m.queries.Add(float64(prompt))
	m.hits.Add(float64(local))
	m.cachedBySource.WithLabelValues(fromDevice).Add(float64(local))
}

// lookedUp counts what a store was asked for and what was taken from it.
func (m *metrics) lookedUp(asked, external int) {
	m.externalQueries.Add(float64(asked))
	m.externalHits.Add(float64(external))
	m.cachedBySource.WithLabelValues(fromExternal).Add(float64(external))
}

// step counts one pass over this many tokens of a prompt; a pass that samples
// makes one token of output.
func (m *metrics) step(prompt int, sampled bool, flops int64) {
	m.flops.Add(float64(flops))
	if sampled {
		prompt++
	}
	m.iterationTokens.Observe(float64(prompt))
}

// token counts a generated token, and with the first one the prompt.
func (m *metrics) token(s *sequence, now time.Time) {
	m.generation.Inc()
	if s.generated() > 1 {
		m.interToken.Observe(now.Sub(s.last).Seconds())
		s.last = now
		return
	}
	s.first, s.last = now, now
	m.ttft.Observe(now.Sub(s.arrived).Seconds())
	m.prompt.Add(float64(len(s.prompt)))
	m.cached.Add(float64(s.local + s.external))
	m.bySource.WithLabelValues(localHit).Add(float64(s.local))
	m.bySource.WithLabelValues(externalHit).Add(float64(s.external))
	m.bySource.WithLabelValues(localCompute).Add(float64(len(s.prompt) - s.local - s.external))
}

// finished counts a request that ended by itself. Requests whose client went
// away leave nothing here, not even an "abort": as observed.
func (m *metrics) finished(s *sequence, reason string) {
	m.success.WithLabelValues(reason).Inc()
	n := s.generated()
	m.promptTokens.Observe(float64(len(s.prompt)))
	m.generationTokens.Observe(float64(n))
	m.prefillComputed.Observe(float64(len(s.prompt) - s.local - s.external))
	m.maxGeneration.Observe(float64(s.maxTokens))
	m.paramMax.Observe(float64(s.maxTokens))
	m.paramN.Observe(1)
	m.preemptions.Observe(0)
	m.e2e.Observe(s.last.Sub(s.arrived).Seconds())
	m.queueTime.Observe(s.scheduled.Sub(s.arrived).Seconds())
	m.inferenceTime.Observe(s.last.Sub(s.scheduled).Seconds())
	m.prefillTime.Observe(s.first.Sub(s.scheduled).Seconds())
	decode := s.last.Sub(s.first).Seconds()
	m.decodeTime.Observe(decode)
	m.perToken.Observe(decode / float64(max(1, n-1)))
}

// failed counts a request that the engine could not complete.
func (m *metrics) failed() { m.success.WithLabelValues("error").Inc() }
