package engine

import "github.com/prometheus/client_golang/prometheus"

// newMetrics registers every family of an engine, at 0.
func newMetrics(e *Engine) *metrics {
	registry := prometheus.NewRegistry()
	model := prometheus.Labels{"model_name": e.config.ModelName}
	own := prometheus.Labels{"engine": "0", "model_name": e.config.ModelName}
	f := families{registry: registry, prefix: "vllm:", labels: own}
	m := &metrics{registry: registry}

	m.flops = f.counter("estimated_flops_per_gpu", "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).")
	f.counter("estimated_read_bytes_per_gpu", "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).")
	f.counter("estimated_write_bytes_per_gpu", "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).")

	m.queries = f.counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.")
	m.hits = f.counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.")
	m.externalQueries = f.counter("external_prefix_cache_queries", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.")
	m.externalHits = f.counter("external_prefix_cache_hits", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.")
	f.counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.")
	f.counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.")
	f.counter("num_preemptions", "Cumulative number of preemption from the engine.")

	m.prompt = f.counter("prompt_tokens", "Number of prefill tokens processed.")
	m.bySource = f.countersAtZero("prompt_tokens_by_source", "Number of prompt tokens by source.", "source", localCompute, localHit, externalHit)
	m.cached = f.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
	m.cachedBySource = f.countersAtZero("prompt_tokens_cached_by_source", "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
		"source", fromDevice, "host", "p2p", "disk", fromExternal)
	m.generation = f.counter("generation_tokens", "Number of generation tokens processed.")
	m.success = f.countersAtZero("request_success", "Count of successfully processed requests.", "finished_reason", "stop", "length", "abort", "error", "repetition")
	f.with(model).countersAtZero("admission_rejections", "Number of admission attempts rejected by a queue limit, by reason.", "reason", "max_num_queued_reqs", "max_num_queued_tokens")

	lengths := lengthBuckets(e.model.Config().Context)
	m.promptTokens = f.histogram("request_prompt_tokens", "Number of prefill tokens processed.", lengths)
	m.generationTokens = f.histogram("request_generation_tokens", "Number of generation tokens processed.", lengths)
	m.iterationTokens = f.histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", iterationBuckets)
	m.maxGeneration = f.histogram("request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", lengths)
	m.paramN = f.histogram("request_params_n", "Histogram of the n request parameter.", paramNBuckets)
	m.paramMax = f.histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", lengths)
	m.prefillComputed = f.histogram("request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", lengths)
	m.preemptions = f.histogram("request_num_preemptions", "Histogram of the number of times a request was preempted.", preemptionBuckets)

	m.ttft = f.histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", ttftBuckets)
	m.interToken = f.histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", perTokenBuckets)
	m.perToken = f.histogram("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", perTokenBuckets)
	m.e2e = f.histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", requestBuckets)
	m.queueTime = f.histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", requestBuckets)
	m.inferenceTime = f.histogram("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", requestBuckets)
	m.prefillTime = f.histogram("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", requestBuckets)
	m.decodeTime = f.histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", requestBuckets)

	sleep := f.gauges("engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", "sleep_state")
	sleep.WithLabelValues("awake").Set(1)
	sleep.WithLabelValues("weights_offloaded").Set(0)
	sleep.WithLabelValues("discard_all").Set(0)
	f.with(cacheConfig(e.config)).gauges("cache_config_info", "Information of the LLMEngine CacheConfig").WithLabelValues().Set(1)
	registry.MustRegister(newLoadCollector(e, own))

	plain := families{registry: registry}
	// Of the engine, not of the process: engines come and go inside one, and a
	// reader takes a change for a restart.
	plain.gauges("process_start_time_seconds", "Start time of the process since unix epoch in seconds.").WithLabelValues().Set(seconds(e.started))
	m.loading = plain.counter("kvproof_kv_load_seconds", "Time that requests waited for KV from an external cache, from the lookup until it was there. The miniature engine's own.")
	m.http = newHTTPMetrics(plain)
	return m
}

// loadCollector shows the gauges of one moment.
type loadCollector struct {
	engine                                   *Engine
	running, waiting, byReason, usage, fetch *prometheus.Desc
}

func newLoadCollector(e *Engine, labels prometheus.Labels) *loadCollector {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("vllm:"+name, help, variable, labels)
	}
	return &loadCollector{
		engine:   e,
		running:  desc("num_requests_running", "Number of requests in model execution batches."),
		waiting:  desc("num_requests_waiting", "Number of requests waiting to be processed."),
		byReason: desc("num_requests_waiting_by_reason", "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.", "reason"),
		usage:    desc("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
		fetch:    desc("num_requests_kv_fetch_by_stage", "Number of waiting requests by async KV load stage. Stage labels: 'waiting_to_start' = needs an async KV load that has not started; 'in_progress' = load started and not yet reported finished; 'completed_waiting' = load finished, request not running yet.", "stage"),
	}
}

func (c *loadCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c *loadCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.engine.load()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.running, float64(l.running))
	gauge(c.waiting, float64(l.waiting))
	gauge(c.byReason, float64(l.waiting), "capacity")
	gauge(c.byReason, 0, "deferred")
	gauge(c.usage, l.kvUsage)
	if c.engine.config.Store != nil {
		// Only with a connector, as observed.
		gauge(c.fetch, 0, "waiting_to_start")
		gauge(c.fetch, float64(l.loading), "in_progress")
		gauge(c.fetch, 0, "completed_waiting")
	}
}
