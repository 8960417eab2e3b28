package harness

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/tiny"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// The load generators.
const (
	internalLoader  = "internal"
	vllmBenchLoader = "vllm-bench"
)

// vllmBenchWorkload is the name of the prompts that vllm bench serve makes up.
const vllmBenchWorkload = "vllm-bench-random"

// checkLoader checks -loader and what goes with it. With an upstream client the
// workload is that client's, and rows that it cannot ask are refused.
func (s *Settings) checkLoader(sel *selection, wrong func(flag string, value any, format string, args ...any)) {
	if s.PrefixLen < 0 {
		wrong("prefixlen", s.PrefixLen, "want 0 or more tokens")
	}
	if !(s.RangeRatio >= 0 && s.RangeRatio < 1) {
		wrong("rangeratio", s.RangeRatio, "want 0 to below 1")
	}
	switch s.Loader {
	case internalLoader:
		return
	case vllmBenchLoader:
	default:
		wrong("loader", s.Loader, "want %s or %s", internalLoader, vllmBenchLoader)
		return
	}
	for _, r := range sel.rows {
		if r.Supports(row.Documents) {
			wrong("loader", s.Loader, "row %s of -backend=%s keeps its documents behind /documents and /infer, which vllm bench serve cannot ask; name rows without it, e.g. -backend=baseline,lmcache,daser-prefix",
				r.Name(), s.Backend)
		}
	}
	if s.Attach != "" && os.Getenv(headersVariable) != "" {
		wrong("loader", s.Loader, "vllm bench serve reaches no server behind the headers of %s: it sends the key of OPENAI_API_KEY, and no other headers", headersVariable)
	}
	if s.Rate == recorded {
		wrong("rate", s.Rate, "vllm bench serve has no arrivals of a trace: want inf, or requests per second")
	}
	if sel.stack.Engine != recipe.InProcess && s.Engine != "vllm" {
		wrong("loader", s.Loader, "it drives the miniature engine and vLLM, not %s", s.Engine)
	} else if sel.stack.Engine != recipe.InProcess && sel.model.Dir == "" {
		wrong("loader", s.Loader, "vllm bench serve tokenizes by itself: -model must be the directory of the model, or of its tokenizer")
	}
	var err error
	if sel.vllm, err = vllmbench.Executable(s.VLLM); err != nil {
		if s.Require || s.VLLM != "" {
			wrong("loader", s.Loader, "%w", err)
		}
		sel.noLoader = fmt.Sprintf("The load generator of -loader=%s is not installed: %v.", s.Loader, err)
	}
	switch {
	case s.Workload == "all":
	case s.Workload == string(dataset.Custom) && s.Verbatim:
		return // one file for both clients
	case s.Workload == string(dataset.Custom):
		wrong("workload", s.Workload, "vllm bench serve sends the file as it is: -verbatim is needed, and rows that can be emptied")
	default:
		wrong("workload", s.Workload, "vllm bench serve makes its own prompts, or takes them from a file with -workload=custom")
	}
	// Its prompts have the lengths of -inputlen, more or less, behind the prefix.
	sel.workloads = []fixtures.Workload{{
		Name: vllmBenchWorkload, Doc: "prompts that vllm bench serve makes up",
		Plan: func(p fixtures.Params) (fixtures.Plan, error) {
			unique, err := fixtures.ByName("unique")
			if err != nil {
				return fixtures.Plan{}, err
			}
			p.InputLen = s.longest(s.PrefixLen, p.InputLen)
			p.OutputLen = s.longest(0, p.OutputLen)
			plan, err := unique.Plan(p)
			plan.Workload = vllmBenchWorkload
			return plan, err
		},
	}}
}

// madeUp says that upstream's client makes the prompts up.
func (s *Settings) madeUp() bool { return s.Loader == vllmBenchLoader && s.Workload == "all" }

// longest is the longest of the lengths that vllm bench serve draws.
func (s *Settings) longest(prefix, length int) int {
	return prefix + int(math.Ceil(float64(length)*(1+s.RangeRatio)))
}

// workingSet counts the blocks of a plan, or those of the prompts that vllm
// bench serve will make.
func (s *Settings) workingSet(plan fixtures.Plan) (fixtures.WorkingSet, error) {
	if s.madeUp() {
		return fixtures.CountRandomBlocks(s.Requests, s.PrefixLen, s.InputLen, s.RangeRatio, s.BlockSize)
	}
	return fixtures.CountBlocks(plan, s.BlockSize)
}

// benchPrepared are the fields of prepare.json that only that client has.
func (s *Settings) benchPrepared() *artifact.BenchPrepared {
	if !s.madeUp() {
		return nil
	}
	return &artifact.BenchPrepared{
		MaxPromptTokens: s.longest(s.PrefixLen, s.InputLen), NumPrompts: s.Requests, InputLen: s.InputLen, OutputLen: s.OutputLen,
		RequestRate: s.Rate, MaxConcurrency: s.Concurrency, PrefixLen: s.PrefixLen, RangeRatio: s.RangeRatio, Seed: s.loaderSeed(),
	}
}

// loaderSeed is the seed of the first cycle for a client that makes its prompts
// up: they follow from it alone, so that a run with a nonce needs one of its own,
// or it would find what an earlier run has stored. Numpy takes 32 bits; the
// cycles count on from these 31.
func (s *Settings) loaderSeed() uint64 {
	if s.Nonce == "" {
		return s.Seed
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", s.Seed, s.Nonce))
	return uint64(binary.BigEndian.Uint32(sum[:]) >> 1)
}

// Workloads are the workloads of this run.
func Workloads() []fixtures.Workload { return current.selection.workloads }

// modelDir is the name of the model where a client reads its tokenizer from
// under that name; empty where none does.
func (s *session) modelDir() (string, error) {
	if s.settings.Loader != vllmBenchLoader || s.artifacts == nil || !s.inProcess() {
		return "", nil
	}
	dir, err := filepath.Abs(filepath.Join(s.artifacts.Dir, "tokenizer"))
	if err != nil {
		return "", err
	}
	model, err := recipe.MiniModel(s.settings.Model)
	if err != nil {
		return "", err
	}
	return dir, tiny.WriteTokenizer(dir, model.Vocab, model.Context)
}

// loader is who sends the load to a server; nil: this process does.
func (s *session) loader(server *row.Server) run.Loader {
	if s.settings.Loader != vllmBenchLoader {
		return nil
	}
	set, file := s.settings, ""
	outputLen := set.OutputLen
	if !set.madeUp() {
		file = set.Data
		if !slices.ContainsFunc(s.selection.samples, func(sample dataset.Sample) bool { return sample.Output == 0 }) {
			outputLen = vllmbench.OutputOfFile
		}
	}
	model := server.ModelName
	if !s.inProcess() {
		model = s.selection.model.Dir
	}
	return vllmbench.Loader{Executable: s.selection.vllm, Seed: set.loaderSeed(), Config: vllmbench.Config{
		URL: server.URL, Model: model, ServedModel: server.ModelName, Prompts: set.Requests, InputLen: set.InputLen, OutputLen: outputLen, PrefixLen: set.PrefixLen,
		Rate: set.Rate, Concurrency: set.Concurrency, RangeRatio: set.RangeRatio, Burstiness: set.Burstiness,
		Temperature: set.Temperature, TopP: set.TopP, Dataset: file, SkipChat: set.Chat == "off",
	}}
}

// cycle runs a cycle with whoever sends the load.
func (c *Cell) cycle(ctx context.Context) (run.Result, []row.Finding, error) {
	if c.state.loader != nil {
		return c.state.cell.CycleWith(ctx, c.state.loader)
	}
	return c.state.cell.Cycle(ctx)
}

// elapsed replaces ns/op where another process sent the load: what that needed
// to start is nobody's latency.
func (c *Cell) elapsed(b *testing.B) {
	b.Helper()
	if c.state.loader == nil || len(c.results) == 0 {
		return
	}
	var total time.Duration
	for _, r := range c.results {
		total += r.Cold.Elapsed + r.Warm.Elapsed
	}
	b.ReportMetric(float64(total)/float64(len(c.results)), "ns/op")
}
