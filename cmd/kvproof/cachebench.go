package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// exitInterrupted is what a shell expects of a program that an interrupt ended.
const exitInterrupted = 130

// A cacheBench is what the flags of cachebench say.
type cacheBench struct {
	cachebench.Config
	endpoints lmcmp.Endpoints
	version   string
	mode      string
	format    string
	output    string
	samples   string
	quiet     bool
}

// runCacheBench benchmarks a cache server until all requests are done or a
// signal comes, and ends with 0 only when every byte that came back was right.
func runCacheBench(ctx context.Context, args []string, out, errs io.Writer) int {
	b, err := cacheBenchConfig(args, out)
	if err != nil {
		return notRead(errs, "cachebench", "kvproof help cachebench", err)
	}
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer restore()
	context.AfterFunc(ctx, restore) // a second signal ends the process at once

	progress := out
	if b.format == "json" {
		progress = errs // what is on stdout is one document
	}
	var printing sync.Mutex
	b.Progress = func(line string) {
		if b.quiet {
			return
		}
		printing.Lock()
		defer printing.Unlock()
		say(progress, "%s\n", line)
	}
	result, err := b.run(ctx)
	if result != nil {
		if ctx.Err() != nil {
			b.Progress("Stopping...")
		}
		err = errors.Join(err, b.write(result, out))
		b.Progress("Done.")
	}
	switch {
	case err != nil:
		say(errs, "kvproof cachebench: %v\n", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	case !result.Valid():
		say(errs, "kvproof cachebench: the run is not valid: %d findings, %d of %d comparisons failed\n", len(result.Findings), result.ChecksumBad, result.ChecksumBad+result.ChecksumOK)
		return exitFailed
	}
	return exitOK
}

func (b *cacheBench) run(ctx context.Context) (*cachebench.Result, error) {
	if err := b.place(); err != nil {
		return nil, err
	}
	b.Progress(fmt.Sprintf("Connecting to LMCache MP Server at %s (mode=%s) ...", b.endpoints.RPC, map[bool]string{true: "gpu", false: "cpu"}[b.GPU]))
	server, err := lmcmp.Discover(ctx, b.endpoints, b.version)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if server.Dialect.Newer {
		b.Progress(fmt.Sprintf("  [warning] LMCache %s is newer than %s: it is spoken to by names, in the forms of that release", server.Version, wire.Newest().Version))
	}
	b.Progress(fmt.Sprintf("Server chunk_size = %d", server.Chunk))
	b.Progress("Resolved KV shape spec: " + b.Shape.String())
	transfer, err := server.Resolve(b.Transfer, b.GPU)
	if err != nil {
		return nil, err
	}
	b.Progress(fmt.Sprintf("Transfer: %s, dialect of LMCache %s, cache salt %q", transfer, server.Dialect.Version, b.Salt))
	if server.HTTP == "" {
		b.Progress("  [info] no --url: the server's checksums, counters and locks are not compared")
	}
	b.Progress(fmt.Sprintf("Each request: %d tokens (%d full chunks)", b.Tokens, b.Tokens/server.Chunk))
	return cachebench.Run(ctx, server, b.Config)
}

// write prints the summary, and keeps it and the samples where that was asked
// for. Samples are kept of invalid and interrupted runs, too.
func (b *cacheBench) write(r *cachebench.Result, out io.Writer) error {
	summary := r.WriteText
	if b.format == "json" {
		summary = r.WriteJSON
	}
	err := summary(out)
	if b.output != "" {
		err = errors.Join(err, writeFile(b.output, summary))
	}
	if b.samples != "" {
		err = errors.Join(err, writeFile(b.samples, r.WriteSamples))
	}
	return err
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// cacheBenchConfig reads the flags, which have the names of `lmcache bench
// server` where that has them. Its errors name the flag and its value.
func cacheBenchConfig(args []string, help io.Writer) (*cacheBench, error) {
	b := &cacheBench{}
	flags := flag.NewFlagSet("cachebench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&b.endpoints.RPC, "rpc-url", "tcp://localhost:5555", "endpoint of the server")
	flags.StringVar(&b.endpoints.HTTP, "url", "http://localhost:8080", "its HTTP side, for version, checksums, counters and locks; empty: without")
	flags.StringVar(&b.version, "server-version", "", "release whose dialect is spoken: "+strings.Join(wire.Versions(), ", ")+"; empty: the server is asked")
	flags.StringVar(&b.mode, "mode", "auto", "where the KV lies: cpu, gpu, or auto (gpu where there is one and the transfer is not engine_driven, which copies in memory of the host)")
	transfer := flags.String("transfer-mode", string(lmcmp.Auto), "who copies: engine_driven (the client, through the server's shared memory), lmcache_driven (the server), auto (engine_driven on a CPU, else lmcache_driven)")
	tokens := flags.Int("num-tokens", 512, "tokens per request less one: one more is sent, as upstream does")
	spec := flags.String("kvcache-shape-spec", lmcmp.DefaultShape, "shape of the KV: (planes,blocks,block size,heads,head size):dtype:layers[;…]; 0 blocks or block size are filled in")
	blocks := flags.Int("num-blocks", 0, "paged blocks, where the shape leaves them at 0 (1024)")
	blockSize := flags.Int("block-size", 0, "tokens per block, where the shape leaves it at 0 (16)")
	flags.IntVar(&b.Workers, "tp-size", 1, "tensor-parallel workers of each client")
	mla := flags.Bool("use-mla", false, "all workers share the KV of one plane; implied by a shape of one plane")
	flags.IntVar(&b.Start, "start", 0, "number of the first sequence")
	end := flags.Int("end", -1, "number after the last one")
	requests := flags.Int("requests", 0, "requests of all clients together, instead of --end")
	forever := flags.Bool("forever", false, "go on until an interrupt, instead of --end")
	interval := flags.Float64("interval", 0, "seconds that a client pauses after each pass")
	op := flags.String("op", cachebench.OpPair, "what clients do: pair, store, retrieve, mixed@R with a share R of retrieves")
	flags.IntVar(&b.Clients, "clients", 1, "clients at once, each with a connection, instance, blocks and content of its own")
	flags.Float64Var(&b.Rate, "rate", 0, "requests a second of all clients together; 0: each when the one before has ended")
	flags.StringVar(&b.Model, "model", lmcmp.DefaultModel, "model name in the keys")
	salt := flags.String("salt", "random", "cache salt; a random one makes every run cold")
	flags.Uint64Var(&b.Seed, "seed", 42, "decides the bytes of the KV")
	patience := flags.Float64("timeout", 10, "seconds for one call, and for a store to become visible")
	flags.BoolVar(&b.Limit, "copy-limit", false, "measure after the run how fast this machine copies as many bytes as a request has")
	flags.StringVar(&b.format, "format", "terminal", "of the summary: terminal or json")
	flags.StringVar(&b.output, "output", "", "file that gets the summary, too")
	flags.StringVar(&b.samples, "samples", "", "file that gets every timed operation, a line of JSON each")
	flags.BoolVar(&b.quiet, "quiet", false, "no progress lines")
	flags.BoolVar(&b.quiet, "q", false, "the same")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			cacheBenchHelp(help, flags)
			return nil, err
		}
		return nil, fmt.Errorf("%w; the flags are %s", err, flagNames(flags))
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: only flags are taken, %s", flags.Arg(0), flagNames(flags))
	}
	var err error
	if b.Shape, err = shapeOf(*spec, *blocks, *blockSize); err != nil {
		return nil, err
	}
	if b.Op, err = cachebench.ParseOperation(*op); err != nil {
		return nil, fmt.Errorf("--op=%s: %w", *op, err)
	}
	if b.Requests, err = requestsOf(b.Start, *end, *requests, *forever); err != nil {
		return nil, err
	}
	b.Transfer, b.Tokens = lmcmp.Transfer(*transfer), *tokens+1
	b.Interval = time.Duration(*interval * float64(time.Second))
	b.Patience = time.Duration(*patience * float64(time.Second))
	if b.Salt = *salt; b.Salt == "random" {
		b.Salt = rand.Text()
	}
	return b, b.check(*mla)
}

// check refuses what no server can be asked for.
func (b *cacheBench) check(mla bool) error {
	if _, err := wire.Address(b.endpoints.RPC); err != nil {
		return fmt.Errorf("--rpc-url=%s: %w", b.endpoints.RPC, err)
	}
	if b.version != "" {
		if _, err := wire.ForVersion(b.version); err != nil {
			return fmt.Errorf("--server-version=%s: %w", b.version, err)
		}
	}
	for _, choice := range []struct {
		flag, value string
		of          []string
	}{
		{"mode", b.mode, []string{"auto", "cpu", "gpu"}},
		{"transfer-mode", string(b.Transfer), []string{"auto", "engine_driven", "lmcache_driven"}},
		{"format", b.format, []string{"terminal", "json"}},
	} {
		if !slices.Contains(choice.of, choice.value) {
			return fmt.Errorf("--%s=%s: there are %s", choice.flag, choice.value, strings.Join(choice.of, ", "))
		}
	}
	switch {
	case b.Tokens < 2:
		return fmt.Errorf("--num-tokens=%d: must be at least 1", b.Tokens-1)
	case b.Clients < 1 || b.Workers < 1:
		return fmt.Errorf("--clients=%d --tp-size=%d: at least one of each", b.Clients, b.Workers)
	case b.Patience <= 0:
		return fmt.Errorf("--timeout=%g: must be positive", b.Patience.Seconds())
	case b.Interval < 0 || b.Rate < 0 || b.Start < 0:
		return fmt.Errorf("--interval=%g --rate=%g --start=%d: must not be negative", b.Interval.Seconds(), b.Rate, b.Start)
	case mla && !b.Shape.MLA():
		return fmt.Errorf("--use-mla: the shape %s has two planes, K and V; MLA has one", b.Shape)
	}
	return nil
}
