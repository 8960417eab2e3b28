package doctest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/internal/doctest"
)

// root is the top of the repository, seen from this directory.
const root = "../.."

// pages returns the project's Markdown pages with their texts.
func pages(t *testing.T) map[string][]byte {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md"}
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, more, "docs/ has no page")
	for _, path := range more {
		names = append(names, "docs/"+filepath.Base(path))
	}
	texts := map[string][]byte{}
	for _, name := range names {
		texts[name] = read(t, name)
	}
	return texts
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return text
}

func TestCommandsOfThePagesWork(t *testing.T) {
	if os.Getenv("KVPROOF_DOCTEST") != "" {
		t.Fatal("a command of a page ran the test that runs the commands of the pages")
	}
	for name, text := range pages(t) {
		blocks, err := doctest.Blocks(name, text)
		require.NoError(t, err)
		for _, block := range blocks {
			handling, err := block.Handling()
			require.NoError(t, err)
			switch handling {
			case doctest.Run:
				shell(t, block, "set -euo pipefail\n"+strings.Join(block.Commands(), "\n"))
			case doctest.DryMake:
				if _, err := exec.LookPath("make"); err != nil {
					t.Skip("The make commands of the pages were not checked, because make is missing.")
				}
				for _, command := range block.Commands() {
					shell(t, block, "make -n"+strings.TrimPrefix(command, "make"))
				}
			}
		}
	}
}

// shell runs a script at the root of the repository and fails the test if the
// script does.
func shell(t *testing.T, block doctest.Block, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	// Settings of whoever runs the tests, and of a make above, are not the reader's.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "KVPROOF_")
	})
	cmd.Env = append(cmd.Env, "KVPROOF_DOCTEST=1", "KVPROOF_RESULTS="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:%d: running %q:\n%s", block.File, block.Line, script, out)
}

func TestLinksOfThePagesResolve(t *testing.T) {
	texts := pages(t)
	for name, text := range texts {
		for _, link := range doctest.Links(name, text) {
			target, anchor, _ := strings.Cut(link.Text, "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			_, err := os.Stat(filepath.Join(root, path))
			require.NoError(t, err, "%s", link)
			if anchor != "" {
				require.True(t, doctest.Anchors(texts[path])[anchor], "%s: %s has no such heading", link, path)
			}
		}
	}
}

// repositoryPath is a code span that names a file or directory of the
// repository. Results and variables are none.
var repositoryPath = regexp.MustCompile(`^\.?(bench_test|cmd|cuda|docs|fixtures|harness|internal|scripts|tools|ci|github)(/[A-Za-z0-9_.-]+)*/?$`)

func TestPathsInThePagesExist(t *testing.T) {
	for name, text := range pages(t) {
		for _, mention := range doctest.Spans(name, text) {
			if repositoryPath.MatchString(mention.Text) {
				_, err := os.Stat(filepath.Join(root, mention.Text))
				require.NoError(t, err, "%s", mention)
			}
		}
	}
}

func TestMakefileTargetsAreListedByHelp(t *testing.T) {
	target := regexp.MustCompile(`(?m)^([a-z-]+):`)
	documented := regexp.MustCompile(`(?m)^([a-z-]+):[^#\n]*## .`)
	makefile := string(read(t, "Makefile"))
	require.Equal(t, firstGroups(target, makefile), firstGroups(documented, makefile), "each target says after ## what it does")
	require.Contains(t, firstGroups(target, makefile), "bench")
}

func firstGroups(pattern *regexp.Regexp, text string) []string {
	var groups []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, m[1])
	}
	return groups
}
