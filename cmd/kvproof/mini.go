package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/connector"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// models are the sizes by name.
var models = map[string]func() model.Config{"mini": model.Mini, "nano": model.Nano}

// runMini serves one row of the miniature stack until a signal comes or ctx
// ends, then drains. A second signal kills it.
func runMini(ctx context.Context, args []string, out, errs io.Writer) int {
	if wantsCacheServer(args) {
		return runCacheServer(ctx, args, out, errs)
	}
	config, err := miniConfig(args, out)
	if err != nil {
		return notRead(errs, "mini", "kvproof help mini", err)
	}
	config.Log = errs

	return serveUntilSignal(ctx, errs, func(ctx context.Context) (closer, func(), error) {
		stack, err := mini.Start(ctx, config)
		if err != nil {
			return nil, nil, err
		}
		announce(out, stack, config)
		return stack, func() { say(errs, "kvproof mini: draining for at most %v\n", drainLimit) }, nil
	})
}

// miniConfig reads the flags. Its errors name the flag and its value.
func miniConfig(args []string, help io.Writer) (mini.Config, error) {
	c := mini.Config{}
	flags := flag.NewFlagSet("mini", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.Row, "row", mini.LMCache, "row to serve: "+strings.Join(mini.Rows(), ", "))
	flags.StringVar(&c.Addr, "addr", "127.0.0.1:8001", "address of the engine; port 0 is a free one")
	flags.StringVar(&c.StoreAddr, "storeaddr", "127.0.0.1:0", "address of the store's status and metrics, in rows that have one")
	flags.StringVar(&c.LMCacheAddr, "lmcacheaddr", "", "in row lmcache, another cache server instead of one in this process: where it speaks LMCache's wire, as in tcp://127.0.0.1:5555")
	flags.StringVar(&c.LMCacheHTTP, "lmcachehttp", "", "HTTP side of that server, as in http://127.0.0.1:8080")
	flags.StringVar(&c.LMCacheTransfer, "transfer", connector.EngineDriven, "transfer between engine and cache server in row lmcache: engine_driven, lmcache_driven")
	flags.StringVar(&c.DaserAddr, "daseraddr", "127.0.0.1:2026", "address of DaseR's server, in rows that have one")
	flags.IntVar(&c.BlockSize, "blocksize", mini.DefaultBlockSize, "tokens per KV block and per chunk of the store")
	size := flags.String("model", "mini", "size of the model and its name: mini, or nano, which is faster and knows less")
	seed := flags.Uint64("seed", model.Mini().Seed, "seed of the model's weights")
	flags.IntVar(&c.MaxSeqs, "concurrency", mini.DefaultMaxSeqs, "requests that run at once; more wait in order")
	l1 := flags.String("l1", "", "memory of a store, as in 512mib, in rows that have one (default 1gib)")
	flags.StringVar(&c.L2Dir, "l2dir", "", "directory below which a store keeps a second tier in files; empty: none")
	l2 := flags.String("l2", "", "size of that second tier; empty: no bound")
	faults := flags.String("fault", "", "comma list of faults to plant, see below")
	flags.BoolVar(&c.Unsafe, "unsafe", false, "open /debug: in row lmcache, damage the store by POST /debug/flip?chunk=N&offset=M (GET /debug/chunks lists); with DaseR, check loaded KV by POST and GET /debug/kvcheck?on=true")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			miniHelp(help, flags)
			return c, err
		}
		return c, fmt.Errorf("%w; the flags are %s", err, flagNames(flags))
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("argument %q: only flags are taken, %s", flags.Arg(0), flagNames(flags))
	}
	if c.BlockSize < 1 {
		return c, fmt.Errorf("-blocksize=%d: must be at least 1", c.BlockSize)
	}
	if c.MaxSeqs < 1 {
		return c, fmt.Errorf("-concurrency=%d: must be at least 1", c.MaxSeqs)
	}
	config, ok := models[*size]
	if !ok {
		return c, fmt.Errorf("-model=%s: there are mini and nano", *size)
	}
	c.Model, c.ModelName = config(), *size
	c.Model.Seed = *seed
	if err := (mini.Config{Row: c.Row}).Validate(); err != nil {
		return c, fmt.Errorf("-row=%s: %w", c.Row, err)
	}
	var err error
	if c.L1Bytes, err = optionalSize(*l1); err != nil {
		return c, fmt.Errorf("-l1=%s: %w", *l1, err)
	}
	if c.L2Bytes, err = optionalSize(*l2); err != nil {
		return c, fmt.Errorf("-l2=%s: %w", *l2, err)
	}
	if c.Faults, err = fault.Parse(*faults); err != nil {
		return c, fmt.Errorf("-fault=%s: %w", *faults, err)
	}
	return c, c.Validate()
}

// optionalSize reads a positive size; an empty one is 0, the default.
func optionalSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := fixtures.ParseSize(text)
	if err == nil && size == 0 {
		err = errors.New("must be positive")
	}
	return size, err
}

func flagNames(flags *flag.FlagSet) string {
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, "-"+f.Name) })
	return strings.Join(names, " ")
}

func miniHelp(w io.Writer, flags *flag.FlagSet) {
	say(w, "usage: kvproof mini [FLAGS]\n\nServes a row of the miniature stack until Ctrl-C or SIGTERM, then drains.\nWith -cacheserver=HOST:PORT it serves LMCache's wire alone, and -help lists other flags.\n\nflags:\n")
	flags.SetOutput(w)
	flags.PrintDefaults()
	say(w, "\nfaults, with the findings of which a run must show one:\n")
	for _, f := range slices.Concat(fault.All(), fault.Daser()) {
		findings := strings.Join(f.Findings(), ", ")
		if findings == "" {
			findings = "no finding"
		}
		say(w, "  %-20s %s\n%23s-> %s\n", f, f.About(), "", findings)
	}
}

// announce says where to reach what, and how to try it.
func announce(w io.Writer, s *mini.Stack, c mini.Config) {
	say(w, "row     %s, block size %d, model %s (weights %s)\n", s.Row(), c.BlockSize, s.ModelName(), s.Model().Fingerprint())
	say(w, "engine  %s\n", s.EngineURL())
	if s.StoreURL() != "" {
		say(w, "store   %s\n", s.StoreURL())
	}
	if s.DaserURL() != "" {
		say(w, "daser   %s\n", s.DaserURL())
	}
	if len(c.Faults) > 0 {
		names := make([]string, len(c.Faults))
		for i, f := range c.Faults {
			names[i] = string(f)
		}
		say(w, "faults  %s\n", strings.Join(names, ", "))
	}
	if c.Unsafe && s.DaserURL() != "" {
		say(w, "check   curl -X POST '%s/debug/kvcheck?on=true'\n", s.DaserURL())
	}
	if c.Row == mini.DaserChunk {
		say(w, "upload  curl -s %s/documents -H 'Content-Type: application/json' -d '{\"title\":\"a\",\"text\":\"w8 w9 w10\"}'\n", s.DaserURL())
		say(w, "infer   curl -s %s/infer -H 'Content-Type: application/json' -d '{\"doc_ids\":[\"DOC_ID\"],\"task\":\"w11 w12\"}'\n", s.DaserURL())
	}
	if c.Unsafe && s.StoreURL() != "" {
		say(w, "damage  curl -X POST '%s/debug/flip?chunk=0&offset=3'\n", s.StoreURL())
	}
	say(w, "try     curl -s %s/v1/completions -H 'Content-Type: application/json' -d '{\"model\":\"%s\",\"prompt\":\"w8 w9 w10\",\"max_tokens\":8,\"temperature\":0}'\n", s.EngineURL(), s.ModelName())
}
