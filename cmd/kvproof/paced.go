package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/paced"
)

// runPaced serves answers at times that are known.
func runPaced(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("kvproof paced", flag.ContinueOnError)
	flags.SetOutput(errs)
	addr := flags.String("addr", "127.0.0.1:0", "address to listen on")
	var c paced.Config
	flags.DurationVar(&c.TTFT, "ttft", 50*time.Millisecond, "from the entry of a request to its first token")
	flags.DurationVar(&c.ITL, "itl", 5*time.Millisecond, "from one token to the next")
	if code, ok := parse(flags, args, out); !ok {
		return code
	}
	if c.TTFT < 0 || c.ITL < 0 {
		say(errs, "kvproof paced: -ttft=%v -itl=%v: no answer comes before its request\n", c.TTFT, c.ITL)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := paced.Serve(ctx, *addr, c, func(url string) {
		say(out, "%s model %s: first token after %v, then one every %v; GET %s/truth says what it did\n", url, paced.Model, c.TTFT, c.ITL, url)
	})
	if err != nil {
		say(errs, "kvproof paced: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// runClient drives a server with the client that the benchmarks measure with.
func runClient(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("kvproof client", flag.ContinueOnError)
	flags.SetOutput(errs)
	url := flags.String("url", "", "base URL of the server")
	model := flags.String("model", paced.Model, "name under which the server knows the model")
	var l paced.Load
	flags.IntVar(&l.Streams, "streams", 16, "requests in flight")
	flags.IntVar(&l.Requests, "requests", 320, "requests in all")
	flags.IntVar(&l.InputLen, "inputlen", 128, "prompt tokens")
	flags.IntVar(&l.OutputLen, "outputlen", 32, "tokens to generate")
	if code, ok := parse(flags, args, out); !ok {
		return code
	}
	if *url == "" || l.Streams < 1 || l.Requests < 1 || l.InputLen < 1 || l.OutputLen < 1 {
		say(errs, "kvproof client: want -url, and at least one stream, request and token\n")
		return exitUsage
	}
	client := openai.New(openai.Config{BaseURL: *url, Model: *model, Concurrency: l.Streams})
	defer client.Close()
	seen, err := paced.Drive(ctx, client, l)
	if err != nil {
		say(errs, "kvproof client: %v\n", err)
		return exitFailed
	}
	line, err := json.Marshal(seen)
	if err != nil {
		say(errs, "kvproof client: %v\n", err)
		return exitFailed
	}
	say(out, "%s\n", line)
	return exitOK
}

// parse reads the flags of a command that takes nothing else; not ok: the
// command is over, with that exit code.
func parse(flags *flag.FlagSet, args []string, out io.Writer) (code int, ok bool) {
	if err := helpTo(flags, args, out); err != nil {
		return exitOK, false
	}
	if flags.Parse(args) != nil {
		return exitUsage, false
	}
	if flags.NArg() > 0 {
		say(flags.Output(), "%s: argument %q: only flags are taken\n", flags.Name(), flags.Arg(0))
		return exitUsage, false
	}
	return exitOK, true
}

var errHelp = fmt.Errorf("help was asked for")

// helpTo prints the flags to out where help is what was asked for.
func helpTo(flags *flag.FlagSet, args []string, out io.Writer) error {
	for _, arg := range args {
		if arg == "-h" || arg == "-help" || arg == "--help" {
			flags.SetOutput(out)
			say(out, "usage: %s [FLAGS]\n\n", flags.Name())
			flags.PrintDefaults()
			return errHelp
		}
	}
	return nil
}
