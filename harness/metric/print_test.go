package metric

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"
)

// TestBenchstatReadsEverything prints what a run prints, through testing's own
// formatting, and reads it back the way benchstat does.
func TestBenchstatReadsEverything(t *testing.T) {
	extra := make(map[string]float64)
	for i, u := range Units() {
		extra[u.Name] = []float64{0, 12.5, 100, 71}[i%4]
		if !strings.HasSuffix(u.Name, "%") {
			extra[u.Name] = []float64{0, 12.5, 123456789, 0.25}[i%4]
		}
	}
	require.Len(t, extra, len(Units()), "a unit is described twice")

	slugs := []string{"lmcache", "shared-prefix", "llama-3", "Qwen/Qwen3-8B", "my row"}
	text := "stack: mini\n" + strings.Join(UnitLines(Exact), "\n") + "\n"
	for _, s := range slugs {
		result := testing.BenchmarkResult{N: 1, Extra: extra}
		text += fmt.Sprintf("BenchmarkServe/backend=%s/block=128/workload=%s-2\t%s\n", Slug(s), Slug(s), result)
	}
	text += strings.Join(UnitLines(Exact), "\n") + "\n" // a second time, as -count may

	reader := benchfmt.NewReader(strings.NewReader(text), "test")
	read := 0
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			require.Fail(t, "benchstat does not understand", record.Error())
		case *benchfmt.Result:
			base, parts := record.Name.Parts()
			require.Equal(t, "Serve", string(base))
			var keys []string
			for _, part := range parts {
				keys = append(keys, string(part))
			}
			require.Equal(t, []string{"/backend=" + Slug(slugs[read]), "/block=128", "/workload=" + Slug(slugs[read]), "-2"}, keys)
			got := make(map[string]float64)
			for _, v := range record.Values {
				got[unitAsWritten(v)] = valueAsWritten(v)
			}
			for unit, want := range extra {
				require.InDelta(t, want, got[unit], want*1e-9, unit)
			}
			require.Len(t, got, len(extra))
			read++
		}
	}
	require.NoError(t, reader.Err())
	require.Equal(t, len(slugs), read)

	units := benchfmt.UnitMetadataMap(reader.Units())
	for _, u := range Units() {
		want := 1 // rates and shares
		if strings.Contains(u.Name, "-ns") || strings.HasSuffix(u.Name, "-bytes") || strings.HasSuffix(u.Name, "-tok") || u.Name == ColdTax {
			want = -1
		}
		require.Equal(t, want, units.GetBetter(u.Name), u.Name)
		assume := units.Get(u.Name, "assume")
		require.Equal(t, u.Fixed, assume != nil && assume.Value == "exact", u.Name)
		require.NotEmpty(t, u.About)
	}
	tidied := units.Get("cold-p50-ttft-ns", "better")
	require.Equal(t, "cold-p50-ttft-sec", tidied.Unit, "seconds, which benchstat scales")
	require.Equal(t, benchunit.Decimal, benchunit.ClassOf(tidied.Unit))
}

func unitAsWritten(v benchfmt.Value) string {
	if v.OrigUnit != "" {
		return v.OrigUnit
	}
	return v.Unit
}

func valueAsWritten(v benchfmt.Value) float64 {
	if v.OrigUnit != "" {
		return v.OrigValue
	}
	return v.Value
}

func TestUnitLinesAssumeNothing(t *testing.T) {
	lines := UnitLines(Nothing)
	require.Contains(t, lines, "Unit hit-% better=higher")
	require.Contains(t, UnitLines(Exact), "Unit hit-% better=higher assume=exact")
	require.NotContains(t, strings.Join(lines, "\n"), "exact")
	require.Len(t, lines, len(Units()))
	require.Equal(t, "Unit cold-mean-ttft-ns better=lower", lines[0])
}

func TestSlug(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z0-9._-]+$`)
	for _, c := range []struct{ name, want string }{
		{"lmcache", "lmcache"},
		{"shared-prefix", "shared-prefix"},
		{"daser-chunk", "daser-chunk"},
		{"v0.5.6", "v0.5.6"},
		{"llama-3", "llama_3"},
		{"llama-3-8", "llama-3_8"},
		{"8", "8"},
		{"-8", "_8"},
		{"qwen3-8b", "qwen3-8b"},
		{"Qwen/Qwen3-8B", "qwen_qwen3-8b"},
		{"a / b", "a_b"},
		{"größe", "gr_e"},
		{"", "_"},
		{"\n", "_"},
	} {
		got := Slug(c.name)
		require.Equal(t, c.want, got, "Slug(%q)", c.name)
		require.Regexp(t, valid, got)
		require.Equal(t, got, Slug(got), "a slug is its own slug")
	}
}

// FuzzSlug checks that no value is taken for another key or for GOMAXPROCS on
// a host with one core, where Go appends none.
func FuzzSlug(f *testing.F) {
	for _, s := range []string{"lmcache", "a-1-2", "a/b", "-0", "é-7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		line := "BenchmarkServe/backend=" + Slug(name) + " 1 1 hit-%\n"
		reader := benchfmt.NewReader(strings.NewReader(line), "test")
		require.True(t, reader.Scan())
		result, ok := reader.Result().(*benchfmt.Result)
		require.True(t, ok, line)
		_, parts := result.Name.Parts()
		require.Len(t, parts, 1)
		require.Equal(t, "/backend="+Slug(name), string(parts[0]))
	})
}
