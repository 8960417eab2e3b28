package engine

import (
	"bufio"
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A family is what a metrics page declares and shows under one name.
type family struct {
	kind, help string
	labels     []string // names, sorted, le left out
	bounds     []string // of a histogram, normalized
}

var (
	sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// parse reads the families of a page. It is a reader for tests: the page comes
// from our own writer or from a capture.
func parse(t *testing.T, page []byte) map[string]family {
	t.Helper()
	families := map[string]family{}
	lines := bufio.NewScanner(bytes.NewReader(page))
	current := ""
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			current = name
			families[name] = family{help: help}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			f := families[name]
			f.kind = kind
			families[name] = f
			continue
		}
		m := sample.FindStringSubmatch(line)
		require.NotNil(t, m, "line %q", line)
		f := families[current]
		var names []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				names = append(names, l[1])
				continue
			}
			bound, err := strconv.ParseFloat(l[2], 64)
			require.NoError(t, err)
			if s := strconv.FormatFloat(bound, 'g', -1, 64); !slices.Contains(f.bounds, s) {
				f.bounds = append(f.bounds, s)
			}
		}
		sort.Strings(names)
		f.labels = names
		families[current] = f
	}
	require.NoError(t, lines.Err())
	return families
}

// notOurs are families that belong to Python, to the process or to LMCache's
// connector.
func notOurs(name string) bool {
	return strings.HasPrefix(name, "python_") || strings.Contains(name, "lmcache_mp") ||
		strings.HasPrefix(name, "process_") && name != "process_start_time_seconds"
}

// Every family of the captures is there with its type, help, labels and
// buckets, and no other.
func TestMetricsAreAsCaptured(t *testing.T) {
	for _, c := range []struct {
		file  string
		store bool
	}{{"metrics-after.txt", false}, {"metrics-lmcache-mp.txt", true}} {
		t.Run(c.file, func(t *testing.T) {
			e := capturedEngine(t, func(cfg *Config) {
				if c.store {
					cfg.Store = newMemStore(64, 32)
				}
			})
			do(t, e, http.MethodGet, "/v1/models", "") // so that the http families have series
			want, got := parse(t, testdata(t, c.file)), parse(t, do(t, e, http.MethodGet, "/metrics", "").Body.Bytes())
			for name, w := range want {
				if notOurs(name) {
					delete(want, name)
					continue
				}
				require.Equal(t, w, got[name], name)
			}
			for name := range got {
				if !strings.HasPrefix(name, "kvproof_") { // its own say so by their name
					require.Contains(t, want, name)
				}
			}
		})
	}
}

func TestCacheConfigInfo(t *testing.T) {
	e := newEngine(t, func(c *Config) { c.BlockSize, c.NumBlocks = 32, 50 })
	require.InDelta(t, 1, series(t, e, "vllm:cache_config_info", "block_size", "32", "effective_attention_block_size", "32",
		"num_gpu_blocks", "50", "kv_cache_size_tokens", "1600", "enable_prefix_caching", "False", "engine", "0"), 0)
}

// checkIdentities asserts what holds without aborts, whatever the caches are
// (specs: observed on vLLM 0.32.0 in every phase).
func checkIdentities(t *testing.T, e *Engine, answers ...result) {
	t.Helper()
	page := gather(t, e)
	get := func(name string, labels ...string) float64 { t.Helper(); return page.sum(t, "vllm:"+name, labels...) }
	var prompts, cached, generated int
	for _, a := range answers {
		prompts += a.prompt
		cached += a.cached
		generated += len(a.tokens)
	}
	same := func(want float64, name string, labels ...string) {
		t.Helper()
		require.InDelta(t, want, get(name, labels...), 0, "%s %v", name, labels)
	}
	same(float64(prompts), "prompt_tokens_total")
	same(float64(prompts), "prompt_tokens_by_source_total")
	same(float64(prompts), "prefix_cache_queries_total")
	same(float64(prompts), "request_prompt_tokens")
	same(float64(generated), "generation_tokens_total")
	same(float64(generated), "request_generation_tokens")
	same(float64(cached), "prompt_tokens_cached_total")
	same(float64(cached), "prompt_tokens_cached_by_source_total")
	local, external := get("prefix_cache_hits_total"), get("external_prefix_cache_hits_total")
	same(local, "prompt_tokens_by_source_total", "source", localHit)
	same(local, "prompt_tokens_cached_by_source_total", "source", fromDevice)
	same(external, "prompt_tokens_by_source_total", "source", externalHit)
	same(external, "prompt_tokens_cached_by_source_total", "source", fromExternal)
	if e.config.Store != nil {
		same(float64(prompts)-local, "external_prefix_cache_queries_total")
	} else {
		same(0, "external_prefix_cache_queries_total")
	}
	computed := get("prompt_tokens_by_source_total", "source", localCompute)
	same(computed, "request_prefill_kv_computed_tokens")
	same(computed+float64(generated), "iteration_tokens_total")
	same(float64(len(answers)), "request_success_total", "finished_reason", "length")
	same(float64(len(answers)), "request_params_n")
	same(0, "num_preemptions_total")
	same(0, "num_requests_running")
	same(0, "num_requests_waiting")
	same(0, "kv_cache_usage_perc")
}

// The captured phase again: five requests of one prompt of 69 tokens, warm
// after the first; there: hits 256 and computed 89 of 345 prompt tokens.
func TestCapturedPhase(t *testing.T) {
	e := capturedEngine(t, nil)
	ids := capturedPrompt(t, "completions-stream-cold.sse")
	var answers []result
	for _, n := range []int{6, 6, 6, 6, 3} {
		answers = append(answers, complete(t, e, ask(ids).with(object{"max_tokens": n})))
	}
	checkIdentities(t, e, answers...)
	require.InDelta(t, 345, series(t, e, "vllm:prompt_tokens_total"), 0)
	require.InDelta(t, 256, series(t, e, "vllm:prefix_cache_hits_total"), 0)
	require.InDelta(t, 89, series(t, e, "vllm:prompt_tokens_by_source_total", "source", localCompute), 0)
	require.InDelta(t, 27, series(t, e, "vllm:generation_tokens_total"), 0)
}

func TestHTTPRequestsAreCounted(t *testing.T) {
	e := newEngine(t, nil)
	complete(t, e, ask(prompt(1, 5)))
	do(t, e, http.MethodPost, "/v1/completions", "{")
	do(t, e, http.MethodGet, "/no/such/path", "")
	do(t, e, http.MethodGet, "/health", "")
	count := func(handler, status string) float64 {
		return series(t, e, "http_requests_total", "handler", handler, "status", status)
	}
	require.InDelta(t, 1, count("/v1/completions", "2xx"), 0)
	require.InDelta(t, 1, count("/v1/completions", "4xx"), 0)
	require.InDelta(t, 1, count("none", "4xx"), 0)
	require.InDelta(t, 3, series(t, e, "http_requests_total"), 0, "health checks and scrapes do not count")
}
