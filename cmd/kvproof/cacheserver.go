package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// wantsCacheServer says whether the arguments of kvproof mini ask for the cache
// server alone, which has flags of its own.
func wantsCacheServer(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, dashed := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		return dashed && name == "cacheserver"
	})
}

// runCacheServer serves LMCache's wire, and nothing else, until a signal comes
// or ctx ends.
func runCacheServer(ctx context.Context, args []string, out, errs io.Writer) int {
	config, err := cacheServerConfig(args, out)
	if err != nil {
		return notRead(errs, "mini", "kvproof mini -cacheserver=127.0.0.1:5555 -help", err)
	}
	config.Log = errs

	return serveUntilSignal(ctx, errs, func(ctx context.Context) (closer, func(), error) {
		server, err := lmcache.Start(ctx, config)
		if err != nil {
			return nil, nil, err
		}
		announceCacheServer(out, server, config)
		return server, nil, nil
	})
}

// cacheServerConfig reads the flags. Its errors name the flag and its value.
func cacheServerConfig(args []string, help io.Writer) (lmcache.Config, error) {
	c := lmcache.Config{}
	flags := flag.NewFlagSet("mini -cacheserver", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.Addr, "cacheserver", "", "address of the wire, as in 127.0.0.1:5555; port 0 is a free one")
	flags.StringVar(&c.HTTPAddr, "http", "127.0.0.1:8080", "address of the HTTP side: health, status, metrics, checksums; port 0 is a free one")
	flags.StringVar(&c.Version, "release", wire.Newest().Version, "release of LMCache whose dialect is spoken: "+strings.Join(wire.Versions(), ", "))
	flags.IntVar(&c.Chunk, "chunk", lmcache.DefaultChunk, "tokens in a chunk")
	flags.StringVar(&c.Transfer, "transfer", lmcache.Auto, "transfers that are offered: auto (both), lmcache_driven, engine_driven")
	flags.IntVar(&c.NullBlock, "nullblock", 0, "id of the block that means none: chunks in it are not stored; -1: every block counts")
	flags.IntVar(&c.TransferWorkers, "lanes", 1, "transfers that run at once; the transfers of a connection share one of them")
	flags.IntVar(&c.Workers, "threads", 1, "lookups that run at once")
	flags.StringVar(&c.ShmName, "shmname", "", "the pool of L1 is then /dev/shm/lmcache_l1_pool_NAME; empty: a name of its own")
	flags.StringVar(&c.L2Dir, "l2dir", "", "directory of L2, which is kept; empty: none")
	l1 := flags.String("l1", "1gib", "memory of L1, as in 512mib")
	l2 := flags.String("l2", "", "size of L2; empty: no bound")
	faults := flags.String("fault", "", "comma list of faults to plant, see below")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			cacheServerHelp(help, flags)
			return c, err
		}
		return c, fmt.Errorf("%w; with -cacheserver the flags are %s", err, flagNames(flags))
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("argument %q: only flags are taken, %s", flags.Arg(0), flagNames(flags))
	}
	if c.Addr == "" || c.HTTPAddr == "" {
		return c, errors.New("-cacheserver and -http: each needs an address, as in 127.0.0.1:5555")
	}
	var err error
	if c.L1Bytes, err = optionalSize(*l1); err != nil {
		return c, fmt.Errorf("-l1=%s: %w", *l1, err)
	}
	if c.L2Bytes, err = optionalSize(*l2); err != nil {
		return c, fmt.Errorf("-l2=%s: %w", *l2, err)
	}
	if c.Faults, err = lmcache.ParseFaults(*faults); err != nil {
		return c, fmt.Errorf("-fault=%s: %w", *faults, err)
	}
	return c, c.Validate()
}

func cacheServerHelp(w io.Writer, flags *flag.FlagSet) {
	say(w, "usage: kvproof mini -cacheserver=HOST:PORT [FLAGS]\n\nServes LMCache's wire alone, for any client of it, until Ctrl-C or SIGTERM.\nWhat it does not answer, as LMCache does not, it says on stderr.\n\nflags:\n")
	flags.SetOutput(w)
	flags.PrintDefaults()
	say(w, "\nfaults:\n")
	for _, f := range lmcache.Faults() {
		say(w, "  %-22s %s\n", f, f.About())
	}
}

// announceCacheServer says where to reach what, and how to try it.
func announceCacheServer(w io.Writer, s *lmcache.Server, c lmcache.Config) {
	say(w, "dialect LMCache %s, chunk %d tokens, transfers %s\n", c.Version, c.Chunk, c.Transfer)
	say(w, "wire    %s\n", s.Endpoint())
	say(w, "http    %s\n", s.URL())
	if len(c.Faults) > 0 {
		names := make([]string, len(c.Faults))
		for i, f := range c.Faults {
			names[i] = string(f)
		}
		say(w, "faults  %s\n", strings.Join(names, ", "))
	}
	say(w, "try     lmcache bench server --rpc-url %s --url %s --mode cpu --start 1 --end 9\n", s.Endpoint(), s.URL())
}
