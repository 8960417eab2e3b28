//go:build vllm

package bench_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// needVLLM skips where the real client, which comes with the server, is missing.
func needVLLM(t *testing.T) {
	t.Helper()
	if _, err := vllmbench.Executable(""); err != nil {
		harness.Missing(t, "The real client is not installed: %v.", err)
	}
}

// TestRealUpstreamLoader: the real vllm bench serve against the miniature
// engine. It takes a minute or more for each of its starts.
func TestRealUpstreamLoader(t *testing.T) {
	needVLLM(t)
	out, results, err := loaded(t, "", "-stack=mini", "-backend=lmcache", "-requests=8", "-inputlen=256")
	require.NoError(t, err, "%s", out)
	checkUpstream(t, results, "lmcache", "cold", 16, 8)
}

// onVLLM are the flags of a small run of vLLM itself, on a CPU.
var onVLLM = []string{"-stack=process", "-engine=vllm", "-model=tiny", "-blocksize=32", "-backend=engine-cache", "-requests=4", "-concurrency=2", "-outputlen=32"}

// TestRealUpstreamLoaderOnVLLM: the same against vLLM's own cache.
func TestRealUpstreamLoaderOnVLLM(t *testing.T) {
	needVLLM(t)
	out, results, err := loaded(t, "", append(onVLLM, "-inputlen=256")...)
	require.NoError(t, err, "%s", out)
	checkUpstream(t, results, "engine-cache", "cold", 32, 4)
	require.Contains(t, out, fmt.Sprintf("%.2f hit-%%", 100*224.0/256), "floor((P-1)/32)*32 of each prompt")
}

// TestTextOnVLLM: a file becomes token ids by vLLM's own tokenizer and chat
// template, and hits as the oracle says.
func TestTextOnVLLM(t *testing.T) {
	needVLLM(t)
	random := rand.New(rand.NewPCG(7, 8))
	var file strings.Builder
	for range 4 {
		var words []string
		for range 200 {
			words = append(words, fmt.Sprintf("w%d", 8+random.IntN(4000)))
		}
		fmt.Fprintf(&file, `{"prompt":%q}`+"\n", strings.Join(words, " "))
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o644))
	results := t.TempDir()
	out, err := suite(t.Context(), append(onVLLM, "-workload=custom", "-data="+path, "-results="+results)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := readObject(t, onlyRun(t, results), "engine-cache", "block-32", "custom", "cycle-1", "results.json")
	warm := r["result"].(object)["warm"].(object)["summary"].(object)
	require.EqualValues(t, 4*(200+3+6), warm["prompt_tokens_total"], "words, template, mark")
	require.EqualValues(t, 4*192, warm["usage_cached_tokens"])
}
