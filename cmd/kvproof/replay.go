package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	cycles "github.com/kvproof/kvproof/harness/run"
)

// A replayConfig is what the command line says.
type replayConfig struct {
	dir             string
	engine, backend string // URLs; empty: the row is started anew
	healthy         bool   // without the faults that were planted
}

// runReplay runs a recorded cycle again, on the row started anew or on a server
// that is up. It ends with 1 if the difference, or any other finding, shows
// again, and with 0 if nothing does.
func runReplay(ctx context.Context, args []string, out, errs io.Writer) int {
	config, err := readReplayConfig(args, out)
	if err != nil {
		return notRead(errs, "replay", "kvproof help replay", err)
	}
	recorded, err := artifact.ReadReplay(config.dir)
	if err != nil {
		say(errs, "kvproof replay: %v\n", err)
		return exitUsage
	}
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	found, err := replay(ctx, config, recorded, out, errs)
	switch {
	case err != nil:
		say(errs, "kvproof replay: %v\n", err)
		return exitFailed
	case found:
		return exitFailed
	}
	return exitOK
}

func readReplayConfig(args []string, help io.Writer) (c replayConfig, err error) {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.engine, "engine", "", "URL of an engine that is up; empty: the row is started anew, on the miniature stack")
	flags.StringVar(&c.backend, "backend", "", "URL of the cache server behind that engine")
	flags.BoolVar(&c.healthy, "healthy", false, "start the row without the faults that were planted in it")
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			say(help, "usage: kvproof replay [FLAGS] DIR\n\nDIR is the repro directory of a cycle. Its plan is sent again, cold and warm,\nand compared again. The exit code is 1 if something is found again, 0 if not.\n\n")
			flags.SetOutput(help)
			flags.PrintDefaults()
			return c, err
		}
		return c, fmt.Errorf("%w; the flags are %s", err, flagNames(flags))
	}
	switch {
	case flags.NArg() != 1:
		return c, fmt.Errorf("%d arguments: one directory is replayed", flags.NArg())
	case c.engine == "" && c.backend != "":
		return c, fmt.Errorf("-backend=%s: without -engine nothing is behind it", c.backend)
	}
	c.dir = flags.Arg(0)
	return c, nil
}

// replay says what is found; true: something was.
func replay(ctx context.Context, config replayConfig, recorded artifact.Replay, out, errs io.Writer) (found bool, err error) {
	for _, f := range recorded.Findings {
		say(out, "recorded: %s\n", f)
	}
	r, err := rowOf(config, recorded)
	if err != nil {
		return false, err
	}
	server, err := r.Start(ctx, row.Env{BlockSize: recorded.BlockSize, Concurrency: recorded.Concurrency, Log: errs})
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, server.Close(closing))
	}()
	say(out, "asking row %s at %s: %d requests, %d in flight\n", recorded.Row, server.URL, len(recorded.Plan.Requests), recorded.Concurrency)
	proof, findings, err := cycles.NewCell(server, cycles.Replaying(recorded).For(r)).Proof(ctx)
	if err != nil {
		return false, err
	}
	differences(out, proof.Result)
	if len(findings) == 0 {
		say(out, "not found again: the verdict is %s\n", proof.Verdict)
		return false, nil
	}
	say(out, "found again: %s\n", cycles.Explain(proof.Result, ""))
	return true, nil
}

// rowOf is the recorded row, on the servers that the command line names or on a
// miniature stack like the one that it ran on.
func rowOf(config replayConfig, recorded artifact.Replay) (row.Row, error) {
	if config.engine != "" {
		return recipe.On(recorded.Row, recipe.Endpoints{
			Engine: config.engine, Backend: config.backend, Model: recorded.ModelName,
			Context: recorded.Context, Vocab: recorded.Vocab, AnyVocab: recorded.AnyVocab, TokenBytes: recorded.TokenBytes, Facts: recorded.Facts,
		})
	}
	if stack := recorded.Facts["stack"]; stack != "mini" {
		return nil, fmt.Errorf("the row ran on the stack %q: start it, and name it with -engine=URL (it was %s)", stack, cmp.Or(recorded.Engine, "at no known address"))
	}
	var faults []fault.Fault
	if !config.healthy {
		var err error
		if faults, err = fault.Parse(recorded.Facts["faults"]); err != nil {
			return nil, err
		}
	}
	rows, _, err := recipe.Select(recorded.Row, recipe.Mini{Model: recorded.Facts["model"], Faults: faults})
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}

// shown is how many tokens around the first difference are printed.
const shown = 8

// differences shows each pair of answers that parts, around where it does.
func differences(out io.Writer, result cycles.Result) {
	against := result.Cold
	if result.Reference.Phase != "" {
		against = result.Reference
	}
	for i, p := range result.Comparison.Pairs {
		if p.Divergence < 0 || p.ByText || i >= len(against.Timelines) || i >= len(result.Warm.Timelines) {
			continue
		}
		from := max(0, p.Divergence-shown/2)
		around := func(tokens []int32) []int32 { return tokens[min(from, len(tokens)):min(from+shown, len(tokens))] }
		say(out, "%s parts at token %d; from token %d on:\n  cold %v\n  warm %v\n",
			p.ID, p.Divergence, from, around(against.Timelines[i].Tokens), around(result.Warm.Timelines[i].Tokens))
	}
}
