// Comparelmcache measures LMCache's own benchmark client and kvproof's side by
// side, on one real server: the same shape and requests, block by block in
// turns, L1 empty before each block, every page of the server's pool and of the
// clients' mappings touched before. Both compare checksums. It prints a table
// and keeps every latency.
//
//	go run ./scripts/comparelmcache -blocks 5 -requests 22
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/recipe"
)

//go:embed upstream.py
var upstreamScript []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "comparelmcache:", err)
		os.Exit(1)
	}
}

// A comparison is one run of this program.
type comparison struct {
	blocks, requests int
	shape            string
	tokens           int
	dir              string

	python   string // of LMCache's environment
	upstream string // the launcher
	kvproof  string
	server   *lmcmp.Server
	sequence int
	raw      io.Writer
}

const warmUp = 28 // requests before the first block: they take every place in the pool once

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	c := &comparison{}
	flags := flag.NewFlagSet("comparelmcache", flag.ContinueOnError)
	flags.IntVar(&c.blocks, "blocks", 5, "blocks of each client and transfer")
	flags.IntVar(&c.requests, "requests", 22, "requests in a block; the first of each is dropped")
	flags.StringVar(&c.shape, "shape", "(2,256,16,8,128):float16:32", "KV shape")
	flags.IntVar(&c.tokens, "tokens", 512, "--num-tokens of both clients")
	flags.StringVar(&c.dir, "results", filepath.Join("results", "lmcache-bench-"+time.Now().Format("20060102_150405")), "directory for what was measured")
	pool := flags.Float64("l1gb", 4, "GiB of the server's memory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	path, err := recipe.FindLMCache("")
	if err != nil {
		return err
	}
	c.python = filepath.Join(filepath.Dir(path), "python")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if err := c.build(ctx); err != nil {
		return err
	}
	launcher, err := launch.New("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launcher.Close(context.WithoutCancel(ctx))) }()
	running, err := recipe.LMCacheServer{Chunk: 256, L1GB: *pool, Workers: 8, Dir: c.dir}.Start(ctx, launcher)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop(context.WithoutCancel(ctx))) }()
	if err := touch(running.Pool()); err != nil {
		return err
	}
	if c.server, err = lmcmp.Discover(ctx, running.Endpoints, ""); err != nil {
		return err
	}
	raw, err := os.Create(filepath.Join(c.dir, "latencies.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	c.raw = raw
	return c.measure(ctx, out)
}

// build puts both clients into the directory.
func (c *comparison) build(ctx context.Context) error {
	c.upstream, c.kvproof = filepath.Join(c.dir, "upstream.py"), filepath.Join(c.dir, "kvproof")
	if err := os.WriteFile(c.upstream, upstreamScript, 0o644); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", c.kvproof, "./cmd/kvproof")
	build.Stderr = os.Stderr
	return build.Run()
}

// touch faults every page of the server's pool in.
func touch(pool string) error {
	s, err := shm.Open("/"+filepath.Base(pool), 0)
	if err != nil {
		return err
	}
	return errors.Join(s.Populate(), s.Close())
}

// A block is what one client measured, in ms.
type block struct {
	Client    string               `json:"client"`
	Transfer  string               `json:"transfer"`
	Latencies map[string][]float64 `json:"latencies_ms"`
	Requests  int                  `json:"requests"`
	OK        int                  `json:"checksums_ok"`
	Startup   float64              `json:"startup_s"` // of the process, less the requests
	Copy      []float64            `json:"copy_ms,omitempty"`
	Limit     float64              `json:"copy_limit_gb_s,omitempty"`
	Bytes     int                  `json:"bytes,omitempty"`
}

// measure runs the blocks: one client first in the odd ones, the other in the
// even ones.
func (c *comparison) measure(ctx context.Context, out io.Writer) error {
	var all []block
	for _, transfer := range []string{string(lmcmp.EngineDriven), string(lmcmp.LMCacheDriven)} {
		if _, err := c.ours(ctx, transfer, warmUp); err != nil {
			return err
		}
		for i := range c.blocks {
			pair := []func(context.Context, string, int) (block, error){c.theirs, c.ours}
			if i%2 == 1 {
				pair[0], pair[1] = pair[1], pair[0]
			}
			for _, run := range pair {
				if err := c.server.ClearL1(ctx); err != nil {
					return err
				}
				b, err := run(ctx, transfer, c.requests)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%s, block %d of %d: %s, %d requests, %d checksums right\n", transfer, i+1, c.blocks, b.Client, b.Requests, b.OK)
				if err := json.NewEncoder(c.raw).Encode(b); err != nil {
					return err
				}
				all = append(all, b)
			}
		}
	}
	return printTable(out, all)
}

// arguments are those that both clients get, each block with sequences of its
// own.
func (c *comparison) arguments(transfer string, requests int) []string {
	c.sequence += 1000
	return []string{
		"--rpc-url", c.server.RPC, "--url", c.server.HTTP, "--mode", "cpu", "--transfer-mode", transfer,
		"--kvcache-shape-spec", c.shape, "--num-tokens", strconv.Itoa(c.tokens),
		"--start", strconv.Itoa(c.sequence + 1), "--end", strconv.Itoa(c.sequence + 1 + requests), "--format", "json",
	}
}

// theirs runs LMCache's client. Its interval is long enough for a store to
// become visible: it takes a lookup that is too early for a miss.
func (c *comparison) theirs(ctx context.Context, transfer string, requests int) (block, error) {
	raw := filepath.Join(c.dir, "upstream.json")
	cmd := exec.CommandContext(ctx, c.python, append([]string{c.upstream, "bench", "server", "--interval", "0.02"}, c.arguments(transfer, requests)...)...)
	cmd.Env = append(os.Environ(), "RAW="+raw, "LMCACHE_TRACK_USAGE=false", "DO_NOT_TRACK=1", "CUDA_VISIBLE_DEVICES=")
	began := time.Now()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return block{}, fmt.Errorf("lmcache bench server: %w\n%s", err, output)
	}
	took := time.Since(began)
	if transfer == string(lmcmp.EngineDriven) && !bytes.Contains(output, []byte("mode=SHM")) {
		return block{}, fmt.Errorf("lmcache bench server did not use the shared memory and would have been measured pickling:\n%s", output)
	}
	var result struct {
		Latencies map[string][]float64 `json:"latencies_ms"`
		Checks    map[string][]bool    `json:"checks"`
		Requests  int                  `json:"requests"`
	}
	text, err := os.ReadFile(raw)
	if err != nil {
		return block{}, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return block{}, err
	}
	b := block{Client: "lmcache bench server", Transfer: transfer, Latencies: map[string][]float64{}, Requests: result.Requests}
	for theirs, ours := range map[string]string{
		"cold.lookup": cachebench.ColdLookup, "cold.store": cachebench.ColdStore,
		"warm.lookup": cachebench.WarmLookup, "warm.retrieve": cachebench.WarmRetrieve,
	} {
		b.Latencies[ours] = result.Latencies[theirs]
	}
	for _, ok := range result.Checks["checksum_match"] {
		if ok {
			b.OK++
		}
	}
	b.Startup = took.Seconds()
	return b, nil
}

// ours runs kvproof's client.
func (c *comparison) ours(ctx context.Context, transfer string, requests int) (block, error) {
	samples := filepath.Join(c.dir, "kvproof.jsonl")
	cmd := exec.CommandContext(ctx, c.kvproof, append([]string{"cachebench", "--interval", "0.02", "--quiet", "--copy-limit", "--samples", samples}, c.arguments(transfer, requests)...)...)
	cmd.Stderr = os.Stderr
	began := time.Now()
	output, err := cmd.Output()
	if err != nil {
		return block{}, fmt.Errorf("kvproof cachebench: %w\n%s", err, output)
	}
	b := block{Client: "kvproof cachebench", Transfer: transfer, Latencies: map[string][]float64{}}
	b.Startup = time.Since(began).Seconds()
	var summary struct {
		Metrics struct {
			Results struct {
				Requests int `json:"total_requests"`
				OK       int `json:"checksum_ok"`
			} `json:"results"`
			Throughput struct {
				Limit float64 `json:"copy_limit_gb_s"`
			} `json:"throughput"`
		} `json:"metrics"`
	}
	if err := json.Unmarshal(output, &summary); err != nil {
		return block{}, err
	}
	b.Requests, b.OK, b.Limit = summary.Metrics.Results.Requests, summary.Metrics.Results.OK, summary.Metrics.Throughput.Limit
	return b, readSamples(samples, &b)
}

// readSamples adds the latencies that kvproof kept.
func readSamples(path string, b *block) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for decoder := json.NewDecoder(f); decoder.More(); {
		var s cachebench.Sample
		if err := decoder.Decode(&s); err != nil {
			return err
		}
		b.Latencies[s.Op] = append(b.Latencies[s.Op], float64(s.Took)/1e6)
		if s.Copy > 0 {
			b.Copy, b.Bytes = append(b.Copy, float64(s.Copy)/1e6), s.Bytes
		}
	}
	return nil
}
