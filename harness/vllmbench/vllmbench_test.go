package vllmbench_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/vllmbench"
)

func config() vllmbench.Config {
	return vllmbench.Config{
		URL: "http://127.0.0.1:8001", Model: "/models/qwen3", Prompts: 200, InputLen: 8192, OutputLen: 1, Rate: "inf", Concurrency: 16,
		Burstiness: 1, Temperature: 0, TopP: 1,
	}
}

// The arguments are those of DaseR's runner, in its order.
func TestArgs(t *testing.T) {
	const want = "bench serve --backend openai --base-url http://127.0.0.1:8001 --endpoint /v1/completions --model /models/qwen3 --dataset-name random " +
		"--num-prompts 200 --input-len 8192 --output-len 1 --request-rate inf --max-concurrency 16 --random-prefix-len 0 --random-range-ratio 0.0 --seed 42 --burstiness 1.0 " +
		"--temperature 0.0 --top-p 1.0 --percentile-metrics ttft,tpot,itl,e2el --save-result --save-detailed --result-dir /run/lmcache --result-filename vllm_bench_cold.json"
	c := config()
	require.Equal(t, want, strings.Join(c.Args(42, "/run/lmcache", "vllm_bench_cold.json"), " "))
	c.ServedModel = c.Model
	require.Equal(t, want, strings.Join(c.Args(42, "/run/lmcache", "vllm_bench_cold.json"), " "))

	c.ServedModel, c.Rate, c.RangeRatio, c.PrefixLen, c.Burstiness = "tiny", "2.5", 0.25, 128, 0.5
	got := strings.Join(c.Args(43, "d", "f"), " ")
	for _, part := range []string{"--request-rate 2.5 ", "--random-prefix-len 128 --random-range-ratio 0.25 --seed 43 --burstiness 0.5 ", " --result-filename f --served-model-name tiny"} {
		require.Contains(t, got, part)
	}
}

// A file of the custom format drives this client as it does the project's own.
func TestArgsOfAFile(t *testing.T) {
	c := config()
	c.Dataset, c.OutputLen, c.SkipChat = "prompts.jsonl", vllmbench.OutputOfFile, true
	got := strings.Join(c.Args(42, "d", "f"), " ")
	require.Contains(t, got, " --dataset-name custom --dataset-path prompts.jsonl --no-oversample --ignore-eos --num-prompts 200 --custom-output-len -1 --skip-chat-template --request-rate inf --max-concurrency 16 --seed 42 ")
	require.NotContains(t, got, "random")
	require.NotContains(t, got, "input-len")
}

func TestExecutable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", filepath.Join(dir, "path"))
	t.Setenv("KVPROOF_CACHE", filepath.Join(dir, "cache"))
	_, err := vllmbench.Executable("")
	require.ErrorContains(t, err, "neither on the PATH nor at "+filepath.Join(dir, "cache", "vllm", "bin", "vllm")+": make setup-vllm puts it there")
	_, err = vllmbench.Executable(filepath.Join(dir, "nope"))
	require.ErrorContains(t, err, "looking for vllm")

	for _, place := range []string{filepath.Join(dir, "cache", "vllm", "bin", "vllm"), filepath.Join(dir, "path", "vllm"), filepath.Join(dir, "own")} {
		require.NoError(t, os.MkdirAll(filepath.Dir(place), 0o755))
		require.NoError(t, os.WriteFile(place, []byte("#!/bin/sh\n"), 0o755))
		named := ""
		if filepath.Base(place) == "own" {
			named = place
		}
		got, err := vllmbench.Executable(named)
		require.NoError(t, err)
		require.Equal(t, place, got, "the nearest one wins")
	}
}

// standin builds the stand-in for vllm.
func standin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vllm")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/standin").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func TestRunFailures(t *testing.T) {
	path := standin(t)
	for _, c := range []struct{ mode, want string }{
		{"fail", "exit status 1; it ended with\n\tstandin: cannot do it"},
		{"garbage", "unexpected end of JSON input"},
		{"", "tokenizer.json"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Setenv("STANDIN", c.mode)
			dir := t.TempDir()
			old := filepath.Join(dir, "vllm_bench_cold.json")
			require.NoError(t, os.WriteFile(old, []byte(`{"completed":1,"duration":1}`), 0o644))
			var log bytes.Buffer
			_, err := vllmbench.Client{Config: config(), Executable: path, Log: &log}.Run(t.Context(), 1, dir, "cold")
			require.ErrorContains(t, err, c.want)
			require.Contains(t, log.String(), "[bench] run: "+path+" bench serve --backend openai")
			if c.mode == "fail" {
				require.NoFileExists(t, old, "an old result is not this run's")
			}
		})
	}
}

// The end of the context ends the client and whatever it started.
func TestRunEndsWithItsContext(t *testing.T) {
	path := standin(t)
	t.Setenv("STANDIN", "hang")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := &cancelling{cancel: cancel}
	_, err := vllmbench.Client{Config: config(), Executable: path, Log: log}.Run(ctx, 1, t.TempDir(), "cold")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, log.hung)
}

// cancelling cancels once the stand-in says that it hangs.
type cancelling struct {
	cancel context.CancelFunc
	hung   bool
}

func (c *cancelling) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("hanging")) {
		c.hung = true
		c.cancel()
	}
	return len(p), nil
}
