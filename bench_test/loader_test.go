package bench_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/tiny"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// standinClient builds the stand-in for vllm bench serve.
func standinClient(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vllm")
	out, err := exec.Command("go", "build", "-o", path, "../harness/vllmbench/testdata/standin").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// loaded runs benchmarks with an upstream client as their load.
func loaded(t *testing.T, mode string, args ...string) (output, results string, err error) {
	t.Helper()
	results = t.TempDir()
	args = append([]string{"-loader=vllm-bench", "-results=" + results, "-model=nano", "-blocksize=16", "-requests=3", "-inputlen=70", "-outputlen=32"}, args...)
	cmd := suite(t.Context(), args...)
	cmd.Env = append(cmd.Env, "STANDIN="+mode)
	out, err := cmd.CombinedOutput()
	return string(out), results, err
}

// TestUpstreamLoader: both passes with the same seed, the raw results kept and
// put into the fields of DaseR's runner, the texts compared, the hit rate from
// the counters around each pass.
func TestUpstreamLoader(t *testing.T) {
	out, results, err := loaded(t, "", "-backend=baseline,lmcache,daser-prefix", "-vllm="+standinClient(t))
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "loader: vllm-bench")
	require.Contains(t, out, "cold_warm_exact_match_accuracy: 1")
	for _, row := range []struct{ name, first string }{{"baseline", "baseline"}, {"lmcache", "cold"}, {"daser-prefix", "cold"}} {
		t.Run("backend="+row.name, func(t *testing.T) { checkUpstream(t, results, row.name, row.first, 16, 3) })
	}
	prepared := requireFields(t, "prepare", readObject(t, onlyRun(t, results), "prepare.json")["config"])
	for field, want := range map[string]any{
		"dataset": "vllm-bench-random", "bench_num_prompts": 3.0, "bench_input_len": 70.0, "bench_output_len": 32.0, "bench_request_rate": "inf",
		"bench_max_concurrency": 2.0, "bench_random_prefix_len": 0.0, "bench_random_range_ratio": 0.0, "bench_seed": 42.0,
		"max_prompt_tokens": 70.0, "max_prompt_blocks": 5.0, "total_blocks": 15.0,
	} {
		require.Equal(t, want, prepared[field], field)
	}
}

// checkUpstream checks what a row's cycle left.
func checkUpstream(t *testing.T, results, row, first string, block, requests int) {
	t.Helper()
	cycle := filepath.Join(onlyRun(t, results), row, fmt.Sprintf("block-%d", block), "vllm-bench-random", "cycle-1")
	r := readObject(t, cycle, "results.json")
	correct := requireFields(t, "correctness", r["correctness"])
	require.EqualValues(t, requests, correct["matches"])
	require.EqualValues(t, 1, correct["accuracy"])
	var seeds []string
	for _, phase := range []string{first, "warm"} {
		raw, err := vllmbench.ReadFile(filepath.Join(cycle, "vllm_bench_"+phase+".json"))
		require.NoError(t, err)
		require.Equal(t, requests, *raw.Completed)
		summary := r["result"].(object)[phase].(object)["summary"].(object)
		require.EqualValues(t, *raw.InputTokens, summary["prompt_tokens_total"])
		require.InDelta(t, raw.Elapsed().Seconds()*1000, summary["phase_elapsed_ms"], 1e-3)
		metrics := requireFields(t, "metrics", r["result"].(object)[phase].(object)["metrics"])
		require.EqualValues(t, *raw.InputTokens, metrics["vllm_prometheus"].(object)["vllm:prompt_tokens_total"], "the counters around the pass")
		switch rate := summary["backend_server_cache_hit_rate"]; {
		case row == "baseline" || row == "engine-cache":
			require.Nil(t, rate, "it has no cache server")
		case phase == "warm":
			require.Greater(t, rate, 0.9)
		default:
			require.Less(t, rate, 0.1)
		}
		log, err := os.ReadFile(filepath.Join(cycle, "vllm_bench_"+phase+".log"))
		require.NoError(t, err)
		_, seed, found := strings.Cut(string(log), "--seed ")
		require.True(t, found)
		seeds = append(seeds, strings.Fields(seed)[0])
	}
	require.Equal(t, []string{"42", "42"}, seeds)
}

// TestUpstreamLoaderFails: what the client shows about a pass is found.
func TestUpstreamLoaderFails(t *testing.T) {
	path := standinClient(t)
	for _, c := range []struct{ mode, want string }{
		{"fail", "standin: cannot do it"},
		{"lose", "load-not-delivered"},
		{"other-prompts", "hit-below-oracle"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			out, _, err := loaded(t, c.mode, "-backend=lmcache", "-vllm="+path)
			require.Error(t, err)
			require.Contains(t, out, c.want)
			require.NotContains(t, out, "warm-p50-ttft-ns\t", "no number")
		})
	}
	t.Run("no-texts", func(t *testing.T) {
		out, results, err := loaded(t, "no-texts", "-backend=lmcache", "-vllm="+path)
		require.NoError(t, err, "%s", out)
		require.Contains(t, out, "# cold_warm_exact_match_available: false")
		require.Contains(t, out, "# cold_warm_exact_match_accuracy: null")
		require.Contains(t, out, "# cold_warm_exact_match_reason: vllm bench serve saved no texts of the cold pass")
		var sample object
		line, err := os.ReadFile(filepath.Join(onlyRun(t, results), "samples.jsonl"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(line, &sample))
		require.NotContains(t, sample["metrics"], "match-%", "what was not compared does not match")
	})
}

// TestOneFileDrivesBothClients: the prompts of a file of vLLM's custom format,
// from either client, hit the same.
func TestOneFileDrivesBothClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	var file strings.Builder
	random := rand.New(rand.NewPCG(5, 6))
	for range 3 {
		fmt.Fprintf(&file, `{"prompt":%q,"output_tokens":33}`+"\n", prose(random, 70))
	}
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o644))
	same := []string{"-backend=lmcache", "-workload=custom", "-data=" + path, "-verbatim", "-chat=off"}
	hits := make(map[string]any)
	for name, more := range map[string][]string{"upstream": {"-vllm=" + standinClient(t)}, "internal": {"-loader=internal"}} {
		out, results, err := loaded(t, "", append(slices.Clone(same), more...)...)
		require.NoError(t, err, "%s", out)
		r := readObject(t, onlyRun(t, results), "lmcache", "block-16", "custom", "cycle-1", "results.json")
		warm := r["result"].(object)["warm"].(object)["summary"].(object)
		require.EqualValues(t, 3*70, warm["prompt_tokens_total"], name)
		require.EqualValues(t, 3*33, warm["completion_tokens_total"], name)
		hits[name] = warm["vllm_external_prefix_cache_hit_rate"]
		require.EqualValues(t, 1, r["correctness"].(object)["accuracy"])
	}
	require.Equal(t, hits["internal"], hits["upstream"])
	require.InDelta(t, 3*64.0/(3*70), hits["upstream"], 1e-9)
}

// TestUpstreamLoaderOnAttached: a server of one's own, under a name that is not
// its model's directory.
func TestUpstreamLoaderOnAttached(t *testing.T) {
	small := model.Nano()
	dir := filepath.Join(t.TempDir(), "nano")
	require.NoError(t, tiny.WriteTokenizer(dir, small.Vocab, small.Context))
	args := []string{"-attach=engine=" + engine(t), "-allowreset", "-backend=engine-cache", "-blocksize=32", "-vllm=" + standinClient(t)}
	out, results, err := loaded(t, "", append(args, "-model="+dir)...)
	require.NoError(t, err, "%s", out)
	checkUpstream(t, results, "engine-cache", "cold", 32, 3)

	out, _, err = loaded(t, "", append(args, "-model=")...)
	require.Error(t, err)
	require.Contains(t, out, "-model")
}

// TestUpstreamLoaderMissing: a client that is not installed is named in a full
// sentence; under -require it is an error before anything starts.
func TestUpstreamLoaderMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, require1 := range []bool{false, true} {
		results := t.TempDir()
		cmd := suite(t.Context(), "-loader=vllm-bench", "-backend=lmcache", "-results="+results)
		cmd.Env = append(cmd.Env, "KVPROOF_CACHE="+t.TempDir())
		if require1 {
			cmd.Args = append(cmd.Args, "-require")
		}
		out, err := cmd.CombinedOutput()
		require.Contains(t, string(out), "make setup-vllm")
		if require1 {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 2, exit.ExitCode())
			entries, err := os.ReadDir(results)
			require.NoError(t, err)
			require.Empty(t, entries)
			continue
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "# missing: The load generator of -loader=vllm-bench is not installed")
		require.Contains(t, string(out), "# nothing was measured")
	}
}
