package kvproof

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// typeAtRoot runs the go command in this directory as a person would type it
// and returns its output and exit code.
func typeAtRoot(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	if os.Getenv("KVPROOF_TYPED") != "" {
		t.Fatal("a command typed by this test came back to this test: it should have been answered by TestMain")
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "KVPROOF_TYPED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), "go %v", args)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestBenchmarkCommandAtTheRootIsAnswered(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{
			"the documented command", "\tgo -C bench_test test -bench=. -blocksize=128\n",
			[]string{"test", "-bench", ".", "-blocksize=128"},
		},
		{
			"with a tag, and a flag that nobody defines", "\tgo -C bench_test test -tags=gpu '-bench=Serve/backend=(lmcache)' -count=3 -blocksise 64\n",
			[]string{"test", "-tags", "gpu", "-bench", "Serve/backend=(lmcache)", "-count=3", "-blocksise", "64"},
		},
		{
			"without -bench", "\tgo -C bench_test test -blocksize=16 -bench=.\n",
			[]string{"test", "-blocksize=16"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			output, code := typeAtRoot(t, c.args...)
			require.NotZero(t, code, output)
			require.Contains(t, output, "The benchmarks are in bench_test/")
			require.Contains(t, output, c.want)
			require.NotContains(t, output, "not defined")
		})
	}
}

func TestIsBenchmarkCommand(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want bool
	}{
		{"go test", []string{"-test.paniconexit0", "-test.timeout=10m0s"}, false},
		{"go test -run", []string{"-test.run=^TestLinks$", "-test.v=true"}, false},
		{"go test -bench=", []string{"-test.bench="}, false},
		{"go test -args x", []string{"-test.v=true", "x"}, false},
		{"go test -bench .", []string{"-test.bench=."}, true},
		{"a suite flag", []string{"-blocksize=128"}, true},
		{"two dashes", []string{"--backend=lmcache"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, isBenchmarkCommand(c.args), "isBenchmarkCommand(%q)", c.args)
		})
	}
}

func TestShellQuote(t *testing.T) {
	for arg, want := range map[string]string{
		"-run=^$":        `'-run=^$'`,
		"-blocksize=128": "-blocksize=128",
		"":               "''",
		"it's":           `'it'\''s'`,
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shellQuote(arg)).Output()
		require.NoError(t, err)
		require.Equal(t, arg, string(out), "sh reads shellQuote(%q) = %s", arg, shellQuote(arg))
		require.Equal(t, want, shellQuote(arg))
	}
}
