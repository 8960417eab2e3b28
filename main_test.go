package kvproof

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// TestMain answers benchmark commands that were typed at the root of the
// repository. It reads os.Args before the flag package does, because go test
// hands flags that it does not know to the test binary, where the flag package
// would end with "flag provided but not defined".
func TestMain(m *testing.M) {
	if isBenchmarkCommand(os.Args[1:]) {
		fmt.Fprintln(os.Stderr, benchmarkAnswer(os.Args[1:], buildFlags()))
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// isBenchmarkCommand says whether the arguments of a test binary ask for
// benchmarks: -bench with a pattern, or any flag that is not go test's own,
// which can only be a flag of the suite (or a mistyped one).
func isBenchmarkCommand(args []string) bool {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "test.bench" && value != "" || !strings.HasPrefix(name, "test.") {
			return true
		}
	}
	return false
}

// benchmarkAnswer is what a benchmark command at the root is told: the command
// that runs where the benchmarks are, with the flags that were given.
func benchmarkAnswer(args, build []string) string {
	command := append([]string{"go", "-C", "bench_test", "test"}, build...)
	bench := false
	for _, arg := range args {
		// go test adds these three by itself.
		if strings.HasPrefix(arg, "-test.paniconexit0") || strings.HasPrefix(arg, "-test.timeout=10m0s") ||
			strings.HasPrefix(arg, "-test.testlogfile") {
			continue
		}
		arg = strings.Replace(arg, "-test.", "-", 1)
		bench = bench || strings.HasPrefix(arg, "-bench=")
		command = append(command, shellQuote(arg))
	}
	if !bench {
		command = append(command, "-bench=.")
	}
	return "The benchmarks are in bench_test/, not at the root of the repository. Run\n\n\t" +
		strings.Join(command, " ") + "\n\nor make bench, which also keeps the text for benchstat."
}

// buildFlags returns the flags of go test that are no arguments of the test
// binary but were compiled into it.
func buildFlags() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var flags []string
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags":
			flags = append(flags, "-tags="+shellQuote(s.Value))
		case "-race":
			flags = append(flags, "-race")
		}
	}
	return flags
}

// shellQuote returns arg as a person would type it in a POSIX shell.
func shellQuote(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\n'\"`$&|;<>()*?[]#~!{}\\^") {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
