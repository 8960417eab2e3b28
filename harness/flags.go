package harness

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/recipe"
)

// Settings are the suite's flags. A flag beats its KVPROOF_ variable (upper
// case, e.g. KVPROOF_BLOCKSIZE), which beats the default.
type Settings struct {
	Backend     string
	RowFile     string
	Stack       string
	Engine      string
	Attach      string
	AllowReset  bool
	Keep        bool
	BlockSize   int
	Workload    string
	Requests    int
	Concurrency int
	Rate        string
	Burstiness  float64
	TimeScale   float64
	LengthScale float64
	Window      string
	InputLen    int
	OutputLen   int
	PrefixRatio string
	Turns       int
	Seed        uint64
	Nonce       string
	Model       string
	GPU         string
	Image       string
	Data        string
	Subsets     string
	Chat        string
	Dedup       bool
	Verbatim    bool
	ContextLen  int
	Loader      string
	VLLM        string
	PrefixLen   int
	RangeRatio  float64
	Temperature float64
	TopP        float64
	MaxSeqs     int
	MaxL1       string
	MaxL2       string
	Timeout     time.Duration
	KVShape     string
	Results     string
	Evict       bool
	Require     bool
	DaseR       string
	Strict      bool

	own  *flag.FlagSet // these flags and no others
	all  *flag.FlagSet // with those of go test: which of them were given
	errs []error       // variables that do not parse
}

// Register defines the suite's flags in flags, with the defaults of -stack
// and -engine that the build tags ask for. It is called once, before the flags are parsed.
func Register(flags *flag.FlagSet, stack, engine string) *Settings {
	own := flag.NewFlagSet("suite", flag.ContinueOnError)
	s := &Settings{own: own, all: flags}
	own.StringVar(&s.Backend, "backend", "all", "rows to run: all, or a comma list of "+strings.Join(rowNames(), ", "))
	own.StringVar(&s.RowFile, "rowfile", "", "TOML files that describe rows of yours, a comma list; without -backend they run alone")
	own.StringVar(&s.Stack, "stack", stack, "how services come to be: mini (in this process), process (a local executable) or docker (a container), for all or as engine=process,lmcache=process")
	own.StringVar(&s.Engine, "engine", engine, "which engine a -stack other than mini runs: "+strings.Join(recipe.Engines(), ", "))
	own.StringVar(&s.Attach, "attach", "", "measure servers that somebody else started: engine=URL, at will lmcache=URL or daser=URL, and metrics=URL for each replica; a key is taken from OPENAI_API_KEY")
	own.BoolVar(&s.AllowReset, "allowreset", false, "an attached server is ours alone: empty its caches")
	own.BoolVar(&s.Keep, "keep", false, "leave the servers of real engines up at the end, and say how to attach to them")
	own.IntVar(&s.BlockSize, "blocksize", 128, "tokens per KV block, for the prompts and every server alike")
	own.StringVar(&s.Workload, "workload", "all", "workloads to run: all, or a comma list of "+strings.Join(workloadNames(), ", "))
	own.IntVar(&s.Requests, "requests", 8, "requests per pass")
	own.IntVar(&s.Concurrency, "concurrency", 2, "requests in flight at most")
	own.StringVar(&s.Rate, "rate", closedLoop, "requests per second of an open loop; trace: the arrivals of the trace; inf: a closed loop, in which the next request starts when one ends")
	own.Float64Var(&s.Burstiness, "burstiness", 1, "shape of the intervals of -rate: 1 Poisson, less comes in bursts, more is more regular, inf constant")
	own.Float64Var(&s.TimeScale, "timescale", 1, "how many times as fast -rate=trace replays the arrivals")
	own.Float64Var(&s.LengthScale, "lengthscale", 0, "factor of all lengths of a trace; 0: a hash id becomes a block of the cache, and never more than it was")
	own.StringVar(&s.Window, "window", "", "part of a trace, FROM:TO as times since its start, e.g. 30s:2m; empty: all of it")
	own.IntVar(&s.InputLen, "inputlen", 1024, "prompt tokens per request, where the workload does not say itself")
	own.IntVar(&s.OutputLen, "outputlen", 64, "tokens to generate per request, where the workload does not say itself")
	own.IntVar(&s.PrefixLen, "prefixlen", 0, "tokens that all prompts of -workload=random and -loader=vllm-bench share, in front of -inputlen others")
	own.Float64Var(&s.RangeRatio, "rangeratio", 0, "share by which the lengths of -workload=random and -loader=vllm-bench vary, 0 to below 1: 0.25 is from 0.75 to 1.25 times")
	own.StringVar(&s.PrefixRatio, "prefixratio", defaultPrefixRatio, "share of the prompt that requests of -workload=shared-prefix have in common; a comma list is a sweep")
	own.IntVar(&s.Turns, "turns", defaultTurns, "turns of a conversation in -workload=multi-turn")
	own.Uint64Var(&s.Seed, "seed", 42, "decides the content of all prompts")
	own.StringVar(&s.Nonce, "nonce", "", "mixed into the content beside the seed; repeats a run on a server that is not ours")
	own.StringVar(&s.Model, "model", "mini", "mini, or the much smaller nano, of the miniature engine; of others tiny (written by the suite), or a directory")
	own.StringVar(&s.DaseR, "daser", "", "virtual environment in which vLLM and a checkout of DaseR are installed, or a checkout with one as .venv or venv, for rows with DaseR by process")
	own.StringVar(&s.GPU, "gpu", gpu.Auto, "GPU of all rows of engines that are not the miniature one: auto (the largest, and of equal ones the freest), current (as CUDA_VISIBLE_DEVICES says), or an index in the order of PCI bus ids, as in nvidia-smi")
	own.StringVar(&s.Image, "image", "", "image of the engine's container in place of the row's, or a comma list of service=image, under -stack=docker")
	own.StringVar(&s.Data, "data", "", "file of the workload that reads one (trace, text, imdb, longbench, sharegpt, custom, token-ids); empty: what ships for trace and text")
	own.StringVar(&s.Subsets, "subsets", "", "files of a -data directory to take, a comma list without .jsonl, for -workload=longbench; empty: all")
	own.StringVar(&s.Chat, "chat", "auto", "put text through the model's chat template: on, off, or auto (all but sharegpt)")
	own.BoolVar(&s.Dedup, "dedup", true, "leave out samples of a data set about a context that an earlier one had")
	own.BoolVar(&s.Verbatim, "verbatim", false, "send the texts of -data as they are, without the few tokens that keep cycles apart: for rows that can be emptied")
	own.IntVar(&s.ContextLen, "contextlen", 0, "tokens of prompt and output at most; longer prompts of a data set are left out; 0: the model's context")
	own.StringVar(&s.Loader, "loader", internalLoader, "who sends the load: internal, or vllm-bench, which is upstream's vllm bench serve with prompts of its own")
	own.StringVar(&s.VLLM, "vllm", "", "path of vllm for -loader=vllm-bench; empty: on the PATH, else where make setup-vllm puts it")
	own.Float64Var(&s.Temperature, "temperature", 0, "of the sampling, whose seed is -seed; 0: the likeliest token")
	own.Float64Var(&s.TopP, "topp", 1, "share of the likeliest tokens that is sampled from")
	own.IntVar(&s.MaxSeqs, "maxseqs", 0, "requests that the engine computes at one time; 0: as many as -concurrency")
	own.StringVar(&s.MaxL1, "maxl1", "", "most memory for the L1 of a cache under -evict, e.g. 80gib; it only lowers what the machine allows")
	own.StringVar(&s.MaxL2, "maxl2", "", "most disk for its L2, likewise")
	own.DurationVar(&s.Timeout, "requesttimeout", time.Minute, "longest wait for the next byte of an answer")
	own.StringVar(&s.KVShape, "kvshape", "(2,0,0,8,64):float16:8", "KV of the cache-server benchmark: (planes,blocks,block size,heads,head size):dtype:layers[;…]; 0 blocks or block size are filled in")
	own.StringVar(&s.Results, "results", "", "directory for artifacts (default: results at the module root)")
	own.BoolVar(&s.Evict, "evict", false, "give caches less memory than the working set and a second tier on disk")
	own.BoolVar(&s.Strict, "strict", false, "any difference between cold and warm outputs is a fault, on every engine (vLLM on a GPU: with VLLM_BATCH_INVARIANT=1)")
	own.BoolVar(&s.Require, "require", false, "fail on anything that is missing or not proven, instead of skipping or saying so")
	own.VisitAll(func(f *flag.Flag) {
		flags.Var(f.Value, f.Name, f.Usage)
		s.environment(flags, f.Name)
	})
	return s
}

// environment takes the KVPROOF_ variable of a flag.
func (s *Settings) environment(flags *flag.FlagSet, name string) {
	variable := variableOf(name)
	value, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	if err := flags.Set(name, value); err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s=%s: %w", variable, value, err))
	}
}

// variableOf is the variable behind a flag.
func variableOf(name string) string { return "KVPROOF_" + strings.ToUpper(name) }

// effective lists the settings as they are in force, by flag name.
func (s *Settings) effective() map[string]string {
	values := make(map[string]string)
	s.own.VisitAll(func(f *flag.Flag) { values[f.Name] = f.Value.String() })
	return values
}
