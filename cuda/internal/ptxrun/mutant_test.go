package ptxrun

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutantShapes reach every instruction of both kernels; the small ones come
// first, since most mutants die at once.
var mutantShapes = []shape{
	{planes: 1, blocks: 1, unit: 16, slices: 1},
	{planes: 2, blocks: 2, unit: 301, offset: 1, gap: 3, slices: 1},
	{planes: 1, blocks: 1, unit: 33, slices: 1, reverse: true},
	{planes: 1, blocks: 1, unit: 18, slices: 1},
	{planes: 1, blocks: 1, unit: 19, slices: 1},
	{planes: 1, blocks: 1, unit: 20, slices: 1},
	{planes: 1, blocks: 1, unit: 22, slices: 1},
	{planes: 1, blocks: 1, unit: 23, slices: 1},
	{planes: 1, blocks: 2, unit: 8 * 700, offset: 8, slices: 2},
	{planes: 1, blocks: 1, unit: 4096 * 3, slices: 3},
	{planes: 1, blocks: 1, unit: 4096 * 5, slices: 1},
	{planes: 2, blocks: 2, unit: 4096*4 + 13, gap: 3, slices: 2},
	{planes: 1, blocks: 1, unit: 4096*13 + 3, slices: 1},
	{planes: 1, blocks: 1, unit: 4096*24 + 1, slices: 2},
	{planes: 1, blocks: 1, unit: 16 * 800, slices: 1},          // a thread whose fourth load would be the first past the unit
	{planes: 1, blocks: 1, unit: 16 * (1024 + 800), slices: 1}, // the same after one round of four
	{planes: 1, blocks: 1, unit: 16 * 512 * 3, slices: 3},      // slices shorter than one round of four
}

// noticed says whether a text gives any wrong value or error.
func noticed(text, kernel string) bool {
	kernels, err := Parse(text)
	if err != nil || kernels[kernel] == nil {
		return true
	}
	r := rand.New(rand.NewPCG(5, 6))
	for i, s := range mutantShapes {
		// Neither value would do alone: a lost predicate reads as true or false.
		if s.junk = bigJunk; i%2 == 1 {
			s.junk = 0
		}
		l := newLayout(r, s)
		const limit = 3e6
		if kernel == "kvsum" {
			got, want, err := l.sum(kernels[kernel], limit, 0xD1CE0FF1CE0FFEED)
			if err != nil || !slices.Equal(got, want) {
				return true
			}
			continue
		}
		got, want, err := l.fill(kernels[kernel], limit, 0xD1CE0FF1CE0FFEED)
		if err != nil || string(got) != string(want) {
			return true
		}
	}
	return false
}

var (
	instructionRE = regexp.MustCompile(`^\s+(@%p\d+\s+)?[a-z]`)
	mutations     = []struct{ from, to string }{
		{"add.s", "sub.s"},
		{"sub.s", "add.s"},
		{"xor.b", "or.b"},
		{"or.b", "xor.b"},
		{"and.b", "or.b"},
		{"shr.u64", "shl.b64"},
		{"shl.b", "shr.b"},
		{"shl.b", "shr.u"},
		{"mul.lo", "add"},
		{".ge.", ".gt."},
		{".gt.", ".ge."},
		{".lt.", ".le."},
		{".le.", ".lt."},
		{".eq.", ".ne."},
		{".ne.", ".eq."},
		{"min.", "max."},
		{"ld.global.u8", "ld.global.s8"},
		{"@%p", "@!%p"},
	}
)

// mutants calls f with every changed text of a kernel and what was changed.
func mutants(text, kernel string, f func(mutant, change string)) {
	lines, inside, start := strings.Split(text, "\n"), false, 0
	for i, line := range lines {
		if strings.Contains(line, ".entry ") {
			inside, start = strings.Contains(line, ".entry "+kernel+"("), i
		}
		if !inside || !instructionRE.MatchString(line) {
			continue
		}
		try := func(to string) {
			changed := slices.Clone(lines)
			changed[i] = to
			f(strings.Join(changed, "\n"), fmt.Sprintf("%s+%d: %s => %s", kernel, i-start, tidy(line), tidy(to)))
		}
		try("") // the instruction left out
		for _, m := range mutations {
			if strings.Contains(line, m.from) {
				try(strings.Replace(line, m.from, m.to, 1))
			}
		}
	}
}

func tidy(line string) string {
	line, _, _ = strings.Cut(line, "//")
	if line = strings.Join(strings.Fields(line), " "); line == "" {
		return "nothing"
	}
	return line
}

// TestMutants changes every instruction of the shipped text in turn. Each change
// must show, except those listed with the reason why they change no result.
func TestMutants(t *testing.T) {
	if os.Getenv("KVPROOF_MUTANTS") == "" {
		t.Skip("executes about 900 changed kernels, which takes a minute: KVPROOF_MUTANTS=1 runs it")
	}
	raw, err := os.ReadFile("../../kvsum.ptx")
	require.NoError(t, err)
	text := string(raw)
	for _, kernel := range []string{"kvsum", "kvfill"} {
		require.False(t, noticed(text, kernel), "%s as shipped is wrong", kernel)
	}
	expected, err := os.ReadFile("testdata/equivalent-mutants.txt")
	require.NoError(t, err)
	equivalent := map[string]bool{}
	for line := range strings.Lines(string(expected)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			equivalent[line] = true
		}
	}
	tried := 0
	for _, kernel := range []string{"kvsum", "kvfill"} {
		mutants(text, kernel, func(mutant, change string) {
			tried++
			caught := noticed(mutant, kernel)
			switch {
			case equivalent[change]:
				delete(equivalent, change)
				if caught {
					t.Errorf("is noticed, so not equivalent: %s", change)
				}
			case !caught:
				t.Errorf("not noticed: %s", change)
			}
		})
	}
	require.Empty(t, equivalent, "listed as equivalent but no mutant of this text")
	t.Logf("%d mutants", tried)
}

// TestSomeMutants is the part of TestMutants that every run can afford.
func TestSomeMutants(t *testing.T) {
	raw, err := os.ReadFile("../../kvsum.ptx")
	require.NoError(t, err)
	for _, c := range []struct{ kernel, line, to string }{
		{"kvsum", "bar.sync \t0;", ""},
		{"kvsum", "ld.global.cs.v2.u64", "ld.global.v2.u32"},
		{"kvsum", "atom.global.add.u64", "st.global.u64"},
		{"kvsum", "-7046029254386353131", "-7046029254386353130"},
		{"kvfill", "st.global.u8", "st.global.u16"},
		{"kvfill", ".entry kvfill(", ".entry other("},
	} {
		t.Run(c.kernel+" "+c.line, func(t *testing.T) {
			require.Contains(t, string(raw), c.line)
			require.True(t, noticed(strings.Replace(string(raw), c.line, c.to, 1), c.kernel))
		})
	}
	require.False(t, noticed(strings.Replace(string(raw), ".cs", "", 1), "kvsum"), "a streaming hint changes no value")
}
