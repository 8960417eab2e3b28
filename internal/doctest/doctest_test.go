package doctest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/internal/doctest"
)

// page writes fences as ”' so that they can stand in a Go string.
func page(lines ...string) []byte {
	return []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "'''", "```"))
}

func TestBlocks(t *testing.T) {
	blocks, err := doctest.Blocks("p.md", page(
		"# Title", "<!-- run -->", "'''sh", "echo a", "'''",
		"", "- item", "  <!-- not run: slow -->", "", "  '''console", "  $ sleep 1", "  '''",
		"text between a mark and a block takes it away", "''''''text", "'''", "inner", "'''", "''''''",
		"'''sh", "cat <<E", "'''text", "E", "'''",
	))
	require.NoError(t, err)
	require.Equal(t, []doctest.Block{
		{File: "p.md", Line: 3, Language: "sh", Mark: "run", Text: "echo a\n"},
		{File: "p.md", Line: 10, Language: "console", Mark: "not run: slow", Text: "$ sleep 1\n"},
		{File: "p.md", Line: 14, Language: "text", Text: "```\ninner\n```\n"},
		{File: "p.md", Line: 19, Language: "sh", Text: "cat <<E\n```text\nE\n"},
	}, blocks)

	for _, c := range []struct {
		name, want string
		text       []byte
	}{
		{"open to the end", "p.md:2: the fenced block is never closed", page("a", "'''sh", "b")},
		{"no language", "p.md:1: a fenced block needs a language", page("'''", "make", "'''")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := doctest.Blocks("p.md", c.text)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestHandling(t *testing.T) {
	for _, c := range []struct {
		name, language, mark, text string
		want                       doctest.Handling
		err                        string
	}{
		{"marked to run", "sh", "run", "go version\n", doctest.Run, ""},
		{"make is asked with -n", "sh", "", "make bench  # two minutes\n$ make\n", doctest.DryMake, ""},
		{"not run, with a reason", "sh", "not run: needs a GPU", "nvidia-smi\n", doctest.Leave, ""},
		{"no command", "text", "", "results\n", doctest.Leave, ""},
		{"unmarked", "sh", "", "make test\ncurl localhost\n", 0, `nothing checks "curl localhost"`},
		{"no reason", "sh", "not run:", "x\n", 0, "not why"},
		{"unknown mark", "sh", "skip", "x\n", 0, `the mark "skip"`},
		{"unknown language", "zsh", "", "x\n", 0, `language "zsh"`},
		{"make test would recurse", "sh", "run", "make test\n", 0, "would run the tests"},
		{"all tests would recurse", "sh", "run", "go test -short ./...\n", 0, "would run the tests"},
		{"one package does not", "sh", "run", "go test ./fixtures/...\n", doctest.Run, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := doctest.Block{File: "p.md", Line: 1, Language: c.language, Mark: c.mark, Text: c.text}.Handling()
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestPageReader(t *testing.T) {
	text := page(
		"# What a `KV-cache hit` is, and isn't", "See [methods](docs/methods.md#units) and `[no](link)`.",
		"'''text", "[no](block) `no`", "'''",
		"| code | meaning |", "|---|---|", "| `a-b` | `x` |", "| `c` (or `d`) | y |", "", "| `later` | z |",
	)
	require.Equal(t, []doctest.Mention{{File: "p.md", Line: 2, Text: "docs/methods.md#units"}}, doctest.Links("p.md", text))
	require.Equal(t, map[string]bool{"what-a-kv-cache-hit-is-and-isnt": true}, doctest.Anchors(text))

	column, err := doctest.FirstColumn("p.md", text, "code")
	require.NoError(t, err)
	require.Equal(t, []doctest.Mention{{File: "p.md", Line: 8, Text: "a-b"}, {File: "p.md", Line: 9, Text: "c"}}, column)
	_, err = doctest.FirstColumn("p.md", text, "flag")
	require.ErrorContains(t, err, `no table has "flag"`)

	var spans []string
	for _, m := range doctest.Spans("p.md", text) {
		spans = append(spans, m.Text)
	}
	require.Equal(t, []string{"KV-cache hit", "[no](link)", "a-b", "x", "c", "d", "later"}, spans)
}
