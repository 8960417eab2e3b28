package bench_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The fields of the files of DaseR's benchmark runner.
var originalFields = map[string]string{
	"prepare": "dataset num_samples max_inflight gen_params total_prompt_tokens total_blocks max_prompt_blocks block_size " +
		"derived_l1_size_bytes derived_l1_size derived_l2_size_bytes derived_l2_size lmcache_l1_gb lmcache_l2_gb capacity_capped evict planned_skip_l2",
	"gen_params": "max_tokens temperature top_p seed",
	"manifest":   "run_id backend reuse_mode model store_dir l1_size_bytes l2_size_bytes skip_l2 endpoints log_dir pid_file block_size",
	"config":     "manifest_l1_size_bytes manifest_l1_size manifest_l2_size_bytes manifest_l2_size manifest_skip_l2 storage_tier",
	"phase":      "summary metrics requests",
	"metrics":    "vllm_prometheus backend_prometheus backend_status hit_ratios",
	"request":    "sample_id dataset generated_text ttft_ms latency_ms prompt_tokens completion_tokens error cache_hits cache_chunks_total queue_ms",
	"summary": "num_requests num_errors ttft_ms_mean latency_ms_mean queue_ms_mean prompt_tokens_total completion_tokens_total cache_hits cache_chunks_total " +
		"all_requests_elapsed_ms phase_elapsed_ms phase_prompt_tok_per_s http_trace_cache_hit_rate answer_contains_accuracy vllm_external_prefix_cache_hit_rate backend_server_cache_hit_rate",
	"hit_ratios":  "vllm_external_prefix lmcache_prometheus_lookup lmcache_prometheus_retrieve lmcache_status_prefetch daser_prometheus_tokens daser_external_prefix daser_prometheus_requests",
	"correctness": "available matches mismatches total accuracy length_mismatch mismatch_details",
}

type object = map[string]any

// requireFields checks that a JSON object has the original's fields; more are
// allowed.
func requireFields(t *testing.T, what string, v any) object {
	t.Helper()
	got, ok := v.(object)
	require.True(t, ok, "%s is %T, no object", what, v)
	for name := range strings.FieldsSeq(originalFields[what]) {
		require.Contains(t, slices.Collect(maps.Keys(got)), name, what)
	}
	return got
}

func readObject(t *testing.T, path ...string) object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	var v object
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

// TestResultsInTheOriginalForm: what reads the files and the console of DaseR's
// runner reads these.
func TestResultsInTheOriginalForm(t *testing.T) {
	results := t.TempDir()
	path := filepath.Join(results, "bench.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(
		`{"context":"one two three four five six seven eight","input":"which?","answers":["W"]}`+"\n"+
			`{"context":"one three two four five six seven eight","input":"which?","answers":"no such word"}`+"\n"+
			`{"context":"two three one four five six seven eight","input":"which?"}`+"\n"), 0o644))
	args := append(slices.Clone(small), "-backend=baseline,lmcache,daser-chunk", "-workload=longbench", "-data="+path, "-results="+results)
	out, err := suite(t.Context(), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := onlyRun(t, results)

	prepared := requireFields(t, "prepare", readObject(t, run, "prepare.json")["config"])
	requireFields(t, "gen_params", prepared["gen_params"])
	require.EqualValues(t, 3, prepared["num_samples"])

	for _, row := range []struct{ name, backend, first, mode string }{
		{"baseline", "vllm", "baseline", "none"}, {"lmcache", "lmcache", "cold", "prefix"}, {"daser-chunk", "daser", "cold", "chunk"},
	} {
		manifest := requireFields(t, "manifest", readObject(t, run, row.name, "manifest.json"))
		require.Equal(t, row.backend, manifest["backend"])
		require.Equal(t, row.mode, manifest["reuse_mode"])
		file := filepath.Join(run, row.name, "block-16", "longbench", "cycle-1", "results.json")
		r := readObject(t, file)
		require.Equal(t, manifest, r["manifest"])
		requireFields(t, "prepare", r["config"])
		requireFields(t, "config", r["config"])
		correct := requireFields(t, "correctness", r["correctness"])
		require.Equal(t, true, correct["available"])
		require.EqualValues(t, 3, correct["total"])
		if row.name == "daser-chunk" {
			require.Len(t, correct["mismatch_details"], int(correct["mismatches"].(float64)))
		} else {
			require.EqualValues(t, 1, correct["accuracy"])
		}
		require.ElementsMatch(t, []string{row.first, "warm"}, slices.Collect(maps.Keys(r["result"].(object))))
		for _, name := range []string{row.first, "warm"} {
			phase := requireFields(t, "phase", r["result"].(object)[name])
			summary := requireFields(t, "summary", phase["summary"])
			require.EqualValues(t, 3, summary["num_requests"])
			require.Equal(t, 0.5, summary["answer_contains_accuracy"], "every word of the small model has a w, and none is the other answer")
			require.Equal(t, summary["phase_elapsed_ms"], summary["all_requests_elapsed_ms"])
			metrics := requireFields(t, "metrics", phase["metrics"])
			requireFields(t, "hit_ratios", metrics["hit_ratios"])
			require.EqualValues(t, summary["prompt_tokens_total"], metrics["vllm_prometheus"].(object)["vllm:prompt_tokens_total"])
			require.Len(t, phase["requests"], 3)
			request := requireFields(t, "request", phase["requests"].([]any)[0])
			require.Equal(t, "bench", request["dataset"])
			if row.name == "lmcache" {
				require.NotNil(t, metrics["backend_status"])
				require.NotNil(t, summary["backend_server_cache_hit_rate"])
			}
		}
	}

	// The console's keys come after the last benchmark, as lines that benchstat
	// passes over, and as they are in summary.txt.
	console := string(out)
	last := strings.LastIndex(console, "\nBenchmark")
	require.Positive(t, last)
	for _, want := range []string{
		"# == COMPARISON SUMMARY ==", "# baseline_ttft_ms_mean: ", "# cold_ttft_ms_mean: ", "# warm_latency_ms_mean: ", "# warm_elapsed_ms: ",
		"# warm_prompt_tok_per_s: ", "# warm_backend_cache_hit_rate: ", "# warm_backend_server_cache_hit_rate: ", "# warm_answer_contains_accuracy: 0.5",
		"# cold_uploaded_documents: 4", "# cold_upload_ms: ", "# cold_warm_exact_match_available: true", "# cold_warm_exact_match_accuracy: 1", "# results: ", "# == COMPLETE ==",
	} {
		require.Contains(t, console[last:], want)
		require.NotContains(t, console[:last], want)
	}
	summary, err := os.ReadFile(filepath.Join(run, "summary.txt"))
	require.NoError(t, err)
	require.Contains(t, string(summary), "\ncold_warm_exact_match_available: true\n")
}
