package vllmbench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/run"
)

// A Loader is the client as the load of a cycle: the same seed in both passes,
// the next one in the next cycle.
type Loader struct {
	Executable string
	Config     Config
	Seed       uint64 // of the first cycle
}

var _ run.Loader = Loader{}

// Load runs the client. Its result and its log stay in dir; where that is
// empty, nothing is kept.
func (l Loader) Load(ctx context.Context, cycle int, phase, dir string) (_ run.Loaded, err error) {
	log := io.Discard
	if dir == "" {
		if dir, err = os.MkdirTemp("", "kvproof-vllm-bench-"); err != nil {
			return run.Loaded{}, fmt.Errorf("running vllm bench serve: %w", err)
		}
		defer os.RemoveAll(dir)
	} else {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return run.Loaded{}, fmt.Errorf("running vllm bench serve: %w", err)
		}
		file, err := os.Create(filepath.Join(dir, "vllm_bench_"+phase+".log"))
		if err != nil {
			return run.Loaded{}, fmt.Errorf("running vllm bench serve: %w", err)
		}
		defer file.Close()
		log = file
	}
	client := Client{Config: l.Config, Executable: l.Executable, Log: log}
	result, err := client.Run(ctx, l.Seed+uint64(cycle-1), dir, phase)
	if err != nil {
		return run.Loaded{}, err
	}
	return run.Loaded{Timelines: result.Timelines(phase), Elapsed: result.Elapsed(), Summary: result.Summary(), Raw: result}, nil
}

// Compare compares the texts by index.
func (l Loader) Compare(cold, warm run.Loaded) artifact.Correctness {
	a, _ := cold.Raw.(Result)
	b, _ := warm.Raw.(Result)
	return CompareTexts(a, b)
}

// Shared is the prefix that was asked for; prompts of a file may share anything.
func (l Loader) Shared() int {
	if l.Config.Dataset != "" {
		return math.MaxInt
	}
	return l.Config.PrefixLen
}
