package harness

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/recipe"
)

// selected is what flags come to, as a session would have it.
func selected(t *testing.T, args ...string) *session {
	t.Helper()
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	settings := Register(flags, "mini", "vllm")
	require.NoError(t, flags.Parse(append([]string{"-results=" + t.TempDir()}, args...)))
	sel, err := settings.resolve()
	require.NoError(t, err)
	require.NoError(t, settings.tokenize(t.Context(), &sel, &progress{}))
	require.NoError(t, settings.plan(&sel))
	return &session{ctx: t.Context(), settings: settings, selection: sel}
}

func TestPlanIsSaidBeforehand(t *testing.T) {
	s := selected(t, "-backend=all", "-model=nano", "-blocksize=64", "-inputlen=150", "-evict")
	var text strings.Builder
	require.NoError(t, s.printPlan(&text))
	plan := text.String()
	for line := range strings.Lines(plan) {
		require.True(t, strings.HasPrefix(line, "# "), "benchstat must pass over %q", line)
	}
	for _, want := range []string{
		"rows baseline, lmcache, daser-chunk, daser-prefix",
		"# not applicable: workload unique has no documents, which row daser-chunk reuses",
		"# not applicable: -inputlen=150: workload recomposed: want at least 193",
		"working set", "L1", "L2",
		"# estimate: about",
	} {
		require.Contains(t, plan, want)
	}
	require.NotContains(t, plan, "workload documents has no documents")
}

func TestConfigLinesAreWhatMustNotBeCompared(t *testing.T) {
	a, b := selected(t, "-concurrency=1").configLines(), selected(t, "-concurrency=4", "-evict").configLines()
	require.Contains(t, a, "concurrency: 1")
	require.Contains(t, b, "concurrency: 4")
	require.Contains(t, b, "evict: true")
	require.Len(t, b, len(a))
	for _, line := range a {
		require.Regexp(t, `^[a-z]+: \S+$`, line)
	}
}

func TestOnlyRowsThatReuseDocumentsNeedThem(t *testing.T) {
	s := selected(t, "-backend=baseline,daser-chunk")
	applied := make(map[string][]string)
	for _, r := range s.selection.rows {
		for _, w := range s.selection.workloads {
			if applies(r, w) {
				applied[r.Name()] = append(applied[r.Name()], w.Name)
			}
		}
	}
	require.Equal(t, []string{"documents", "recomposed", "text"}, applied["daser-chunk"])
	require.Len(t, applied["baseline"], len(s.selection.workloads))
}

// TestStrictReachesTheEngine: the flag is no judgement alone, it says how the
// engine is to be started.
func TestStrictReachesTheEngine(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := selected(t, fmt.Sprint("-strict=", strict), "-stack=docker", "-model=tiny", "-inputlen=512")
		builder, _ := s.settings.deploy(s.selection.stack, gpu.Choice{}, nil, func(flag string, _ any, format string, args ...any) {
			t.Errorf("-"+flag+": "+format, args...)
		})
		require.Equal(t, strict, builder.(recipe.Deployment).Strict)
		require.Equal(t, strict || exactRows(s.selection.rows), s.selection.exact)
	}
}

// A length of prompts that nobody has given is one that the context of the run holds.
func TestInputFitsTheContext(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 992},
		{[]string{"-contextlen=256"}, 224},
		{[]string{"-contextlen=256", "-inputlen=300"}, 300},
		{[]string{"-outputlen=600"}, 424},
		{[]string{"-outputlen=2000"}, 8192}, // which has no room at all, as is said elsewhere
	} {
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		s := Register(flags, "mini", "vllm")
		require.NoError(t, flags.Parse(append([]string{"-outputlen=32"}, c.args...)))
		if !s.given()["inputlen"] {
			s.InputLen = 8192
		}
		s.fitInput(recipe.Model{Context: 1024})
		require.Equal(t, c.want, s.InputLen, "%v", c.args)
	}
}
