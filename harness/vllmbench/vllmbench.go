// Package vllmbench drives a server with upstream's own load client,
// `vllm bench serve`, and reads what it wrote:
//
//	client := vllmbench.Client{Executable: "vllm", Config: vllmbench.Config{URL: url, Model: dir, Prompts: 200, ...}}
//	result, err := client.Run(ctx, dir, "cold", log)
//
// Its prompts are of its own making (data set random): they repeat with the
// seed, so a second run with the same arguments is a warm pass. It tells their
// lengths, the texts and the times, and nothing about cache hits; those are the
// counters'. Its arguments and its result are those of vLLM 0.32.0.
package vllmbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/host"
)

// A Config is what the client is asked to do.
type Config struct {
	URL         string // of the engine
	Model       string // directory of the model, or of its tokenizer alone; also its name in the API
	ServedModel string // its name in the API where that is another
	Prompts     int
	InputLen    int // tokens of a prompt behind the prefix
	OutputLen   int
	PrefixLen   int    // tokens that all prompts share
	Rate        string // requests per second, or inf
	Concurrency int
	RangeRatio  float64 // lengths vary by that share, from 0 to below 1
	Burstiness  float64
	Temperature float64
	TopP        float64

	// Dataset is a file of the custom format, whose prompts are sent in place
	// of made-up ones. InputLen, PrefixLen and RangeRatio do not apply then.
	Dataset  string
	SkipChat bool // do not put those through the chat template
}

// OutputOfFile as OutputLen takes the lengths that are in the file.
const OutputOfFile = -1

// Args are the arguments of vllm for a run with a seed whose result goes to
// dir/file: those of DaseR's benchmark runner, in its order.
func (c Config) Args(seed uint64, dir, file string) []string {
	args := []string{
		"bench", "serve", "--backend", "openai", "--base-url", c.URL, "--endpoint", "/v1/completions", "--model", c.Model,
	}
	traffic := []string{"--request-rate", c.Rate, "--max-concurrency", strconv.Itoa(c.Concurrency)}
	if c.Dataset == "" {
		args = append(args, "--dataset-name", "random",
			"--num-prompts", strconv.Itoa(c.Prompts), "--input-len", strconv.Itoa(c.InputLen), "--output-len", strconv.Itoa(c.OutputLen))
		args = append(args, traffic...)
		args = append(args, "--random-prefix-len", strconv.Itoa(c.PrefixLen), "--random-range-ratio", decimal(c.RangeRatio))
	} else {
		args = append(args, "--dataset-name", "custom", "--dataset-path", c.Dataset, "--no-oversample", "--ignore-eos",
			"--num-prompts", strconv.Itoa(c.Prompts), "--custom-output-len", strconv.Itoa(c.OutputLen))
		if c.SkipChat {
			args = append(args, "--skip-chat-template")
		}
		args = append(args, traffic...)
	}
	args = append(args, "--seed", strconv.FormatUint(seed, 10), "--burstiness", decimal(c.Burstiness),
		"--temperature", decimal(c.Temperature), "--top-p", decimal(c.TopP), "--percentile-metrics", "ttft,tpot,itl,e2el",
		"--save-result", "--save-detailed", "--result-dir", dir, "--result-filename", file)
	if c.ServedModel != "" && c.ServedModel != c.Model {
		args = append(args, "--served-model-name", c.ServedModel)
	}
	return args
}

// decimal writes a number as Python does: 1.0, not 1.
func decimal(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.ContainsAny(text, ".In") {
		text += ".0"
	}
	return text
}

// Executable is the vllm that is installed: the one that is named, else that on
// the PATH, else that in the project's cache directory. The error says how to
// get one.
func Executable(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("looking for vllm: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("vllm"); err == nil {
		return path, nil
	}
	cache, err := host.CacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for vllm: %w", err)
	}
	path := filepath.Join(cache, "vllm", "bin", "vllm")
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("vllm is neither on the PATH nor at %s: make setup-vllm puts it there", path)
	}
	return path, nil
}

// A Client runs the executable.
type Client struct {
	Config
	Executable string
	Log        io.Writer // of what it prints
}

// grace is how long an interrupted client may take to end.
const grace = 10 * time.Second

// Run runs the client once, in a process group of its own that ends with ctx,
// and reads its result, which stays in dir as vllm_bench_<phase>.json.
func (c Client) Run(ctx context.Context, seed uint64, dir, phase string) (Result, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Result{}, fmt.Errorf("running vllm bench serve: %w", err)
	}
	file := "vllm_bench_" + phase + ".json"
	path := filepath.Join(dir, file)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Result{}, fmt.Errorf("running vllm bench serve: %w", err) // an old result must not pass for this one's
	}
	args := c.Args(seed, dir, file)
	fmt.Fprintf(c.Log, "[bench] run: %s %s\n", c.Executable, quoted(args))
	var last tail
	cmd := exec.CommandContext(ctx, c.Executable, args...)
	cmd.Env = c.Environment()
	cmd.Stdout, cmd.Stderr = io.MultiWriter(c.Log, &last), io.MultiWriter(c.Log, &last)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in its group; none is fine
	}
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("running vllm bench serve: %w", context.Cause(ctx))
	case err != nil:
		return Result{}, fmt.Errorf("running vllm bench serve: %w; it ended with\n\t%s", err, last.String())
	}
	result, err := ReadFile(path)
	if err != nil {
		return Result{}, fmt.Errorf("%w; vllm bench serve ended with\n\t%s", err, last.String())
	}
	return result, nil
}

// Environment keeps the client off the network and away from proxies.
func (c Config) Environment() []string {
	env := append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1")
	if u, err := url.Parse(c.URL); err == nil {
		env = append(env, "NO_PROXY="+u.Hostname(), "no_proxy="+u.Hostname())
	}
	return env
}

func quoted(args []string) string {
	var words []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?`") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// A tail keeps the end of what is written to it.
type tail struct{ text []byte }

const tailBytes = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = append([]byte(nil), t.text[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return strings.ReplaceAll(strings.TrimSpace(string(t.text)), "\n", "\n\t")
}
