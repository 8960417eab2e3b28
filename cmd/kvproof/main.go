// Kvproof is what is not a go test: servers to try things on and tools beside
// the benchmarks. The benchmarks themselves are in bench_test.
//
//	kvproof mini -row lmcache -addr 127.0.0.1:8001
//	kvproof mini -cacheserver 127.0.0.1:5555 -http 127.0.0.1:8080
//	kvproof help mini
//
// It exits with 0 when all went well, 1 when something failed, and 2 when it
// was asked for something that there is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/paced"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A command is one subcommand, in a file of its own.
type command struct {
	name  string
	about string // one line
	run   func(ctx context.Context, args []string, out, errs io.Writer) int
}

func commands() []command {
	return []command{
		{"mini", "serve the miniature stack: an engine that really computes, and its store", runMini},
		{"cachebench", "measure a cache server of LMCache, and compare every byte that comes back", runCacheBench},
		{"compare", "name the differences between two runs that the client's own error may have made", runCompare},
		{"replay", "ask again what a finding was about, and compare again", runReplay},
		{"paced", "serve answers at times that are known, to measure a client against", runPaced},
		{"client", "drive a server with the client that the benchmarks measure with", runClient},
		{"compareclient", "measure that client and vllm bench serve side by side, against known truth", runCompareClient},
		{"doctor", "say which rungs this machine can run, and what would add the others", runDoctor},
		{"version", "print what this binary was built from", runVersion},
	}
}

// notRead is the exit code of a command whose flags were not read: its help was
// asked for and has been printed, or something is wrong with them.
func notRead(errs io.Writer, command, help string, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	say(errs, "kvproof %s: %v\n%s lists the flags\n", command, err, help)
	return exitUsage
}

func main() {
	if served, err := paced.Main(); served { // started by compareclient
		if err != nil {
			say(os.Stderr, "kvproof: %v\n", err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		usage(errs)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			usage(out)
			return exitOK
		}
		args = []string{args[1], "-h"}
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == args[0] })
	if i < 0 {
		names := make([]string, 0, len(commands()))
		for _, c := range commands() {
			names = append(names, c.name)
		}
		say(errs, "kvproof: command %q is not known; there are help, %s\n", args[0], strings.Join(names, ", "))
		return exitUsage
	}
	return commands()[i].run(ctx, args[1:], out, errs)
}

func usage(w io.Writer) {
	say(w, "kvproof proves that a KV-cache hit is fast and right. Its benchmarks run with\n"+
		"go test in bench_test; this command is for what is not a benchmark.\n\nusage: kvproof COMMAND [FLAGS]\n\n")
	for _, c := range commands() {
		say(w, "  %-10s %s\n", c.name, c.about)
	}
	say(w, "  %-10s %s\n", "help", "print this, or the flags of a command: kvproof help mini")
}

// say writes for a person. A terminal that is gone cannot be told so.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
