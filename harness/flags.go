package harness

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// Settings are the suite's flags. A flag beats its KVPROOF_ variable (upper
// case, e.g. KVPROOF_BLOCKSIZE), which beats the default.
type Settings struct {
	Backend     string
	Stack       string
	BlockSize   int
	Workload    string
	Requests    int
	Concurrency int
	InputLen    int
	OutputLen   int
	Seed        uint64
	Nonce       string
	Model       string
	Data        string
	Results     string
	Evict       bool
	Require     bool

	errs []error // variables that do not parse
}

// Register defines the suite's flags in flags, with the default of -stack that
// the build tags ask for. It is called once, before the flags are parsed.
func Register(flags *flag.FlagSet, stack string) *Settings {
	s := &Settings{}
	flags.StringVar(&s.Backend, "backend", "all", "rows to run: all, or a comma list of "+strings.Join(rowNames(), ", "))
	flags.StringVar(&s.Stack, "stack", stack, "how services come to be: mini (in this process)")
	flags.IntVar(&s.BlockSize, "blocksize", 128, "tokens per KV block, for the prompts and every server alike")
	flags.StringVar(&s.Workload, "workload", "all", "workloads to run: all, or a comma list of "+strings.Join(workloadNames(), ", "))
	flags.IntVar(&s.Requests, "requests", 8, "requests per pass")
	flags.IntVar(&s.Concurrency, "concurrency", 2, "requests in flight at most (closed loop)")
	flags.IntVar(&s.InputLen, "inputlen", 1024, "prompt tokens per request, where the workload does not say itself")
	flags.IntVar(&s.OutputLen, "outputlen", 64, "tokens to generate per request, where the workload does not say itself")
	flags.Uint64Var(&s.Seed, "seed", 42, "decides the content of all prompts")
	flags.StringVar(&s.Nonce, "nonce", "", "mixed into the content beside the seed; repeats a run on a server that is not ours")
	flags.StringVar(&s.Model, "model", "mini", "model of the miniature engine: mini, or the much smaller nano")
	flags.StringVar(&s.Data, "data", "", "trace file (Mooncake JSONL) for -workload=trace; empty: the slice that ships")
	flags.StringVar(&s.Results, "results", "", "directory for artifacts (default: results at the module root)")
	flags.BoolVar(&s.Evict, "evict", false, "give caches less memory than the working set and a second tier on disk")
	flags.BoolVar(&s.Require, "require", false, "fail on anything that is missing or not proven, instead of skipping or saying so")
	s.environment(flags)
	return s
}

// environment takes KVPROOF_* for the flags that are defined.
func (s *Settings) environment(flags *flag.FlagSet) {
	for _, name := range suiteFlags {
		variable := "KVPROOF_" + strings.ToUpper(name)
		value, ok := os.LookupEnv(variable)
		if !ok {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s=%s: %w", variable, value, err))
		}
	}
}

var suiteFlags = []string{
	"backend", "stack", "blocksize", "workload", "requests", "concurrency", "inputlen", "outputlen",
	"seed", "nonce", "model", "data", "results", "evict", "require",
}

// effective lists the settings as they are in force, by flag name.
func (s *Settings) effective(flags *flag.FlagSet) map[string]string {
	values := make(map[string]string, len(suiteFlags))
	for _, name := range suiteFlags {
		if f := flags.Lookup(name); f != nil {
			values[name] = f.Value.String()
		}
	}
	return values
}
