package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/tiny"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// A comparison is what runCompareClient was asked for.
type comparison struct {
	streams []int
	runs    int
	rounds  int
	most    int // requests of a run
	paced.Config
	input, output int
	dir           string
	vllm          string
	server        *paced.Process
}

// runCompareClient measures clients against a server whose truth is known, each
// in a process of its own, in turns.
func runCompareClient(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("kvproof compareclient", flag.ContinueOnError)
	flags.SetOutput(errs)
	c := comparison{}
	streams := flags.String("streams", "1,16,64,256,512,1024", "requests in flight, a comma list")
	flags.IntVar(&c.runs, "runs", 3, "runs of each client at each number of streams")
	flags.IntVar(&c.rounds, "rounds", 20, "requests for each stream")
	flags.IntVar(&c.most, "most", 5120, "requests of a run at most")
	flags.DurationVar(&c.TTFT, "ttft", 50*time.Millisecond, "the server's true time to first token")
	flags.DurationVar(&c.ITL, "itl", 5*time.Millisecond, "the server's true time between tokens")
	flags.IntVar(&c.input, "inputlen", 128, "prompt tokens")
	flags.IntVar(&c.output, "outputlen", 32, "tokens to generate")
	flags.StringVar(&c.vllm, "vllm", "", "path of vllm; empty: on the PATH, else in the project's cache directory")
	flags.StringVar(&c.dir, "out", "", "directory for raw data (default: results/client-TIME)")
	if code, ok := parse(flags, args, out); !ok {
		return code
	}
	for text := range strings.SplitSeq(*streams, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			say(errs, "kvproof compareclient: -streams=%s: %q is no number of streams\n", *streams, text)
			return exitUsage
		}
		c.streams = append(c.streams, n)
	}
	if min(c.runs, c.rounds, c.most, c.input, c.output) < 1 || c.TTFT < 0 || c.ITL < 0 {
		say(errs, "kvproof compareclient: want at least one run, round, request and token, and no time below 0\n")
		return exitUsage
	}
	if c.dir == "" {
		c.dir = filepath.Join("results", "client-"+time.Now().Format("2006-01-02T15-04-05"))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, out, errs); err != nil {
		say(errs, "kvproof compareclient: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// run does all runs and prints the table.
func (c *comparison) run(ctx context.Context, out, errs io.Writer) (err error) {
	clients := []string{"kvproof", "vllm bench serve"}
	if c.vllm, err = vllmbench.Executable(c.vllm); err != nil {
		say(errs, "only this project's client is measured: %v\n", err)
		clients = clients[:1]
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	if err := tiny.WriteTokenizer(filepath.Join(c.dir, "tokenizer"), 4096, 32768); err != nil {
		return err
	}
	if c.server, err = paced.Start(c.Config); err != nil {
		return err
	}
	defer func() { _ = c.server.Stop() }()
	raw, err := os.Create(filepath.Join(c.dir, "runs.jsonl"))
	if err != nil {
		return err
	}
	defer raw.Close()
	var all []measured
	for _, streams := range c.streams {
		for number := range c.runs {
			for i := range clients {
				client := clients[(i+number)%len(clients)] // in turns: neither is always the first
				m, err := c.measure(ctx, client, streams, number)
				if err != nil {
					return fmt.Errorf("%s at %d streams, run %d: %w", client, streams, number+1, err)
				}
				say(errs, "%s\n", m)
				if err := json.NewEncoder(raw).Encode(m); err != nil {
					return err
				}
				all = append(all, m)
			}
		}
	}
	table(out, all, clients)
	say(out, "\nraw data: %s\n", raw.Name())
	return nil
}

// command is the program and arguments of a client for one run.
func (c *comparison) command(client string, streams, number int) (args, env []string, result string) {
	requests := min(max(c.rounds*streams, 20), c.most)
	if client == "kvproof" {
		return []string{
			self(), "client", "-url=" + c.server.URL, fmt.Sprintf("-streams=%d", streams), fmt.Sprintf("-requests=%d", requests),
			fmt.Sprintf("-inputlen=%d", c.input), fmt.Sprintf("-outputlen=%d", c.output),
		}, os.Environ(), ""
	}
	config := vllmbench.Config{
		URL: c.server.URL, Model: filepath.Join(c.dir, "tokenizer"), Prompts: requests, InputLen: c.input, OutputLen: c.output,
		Rate: "inf", Concurrency: streams, Burstiness: 1, TopP: 1,
	}
	file := fmt.Sprintf("vllm-bench-%d-%d.json", streams, number)
	return append([]string{c.vllm}, config.Args(uint64(number), c.dir, file)...), config.Environment(), filepath.Join(c.dir, file)
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
