package bench_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/internal/doctest"
)

// TestKeep: a stack that -keep left up is reached by the line that was printed,
// and ends as kvproof doctor says.
func TestKeep(t *testing.T) {
	example, dir := exampleOfTheDocs(t)
	file := filepath.Join(t.TempDir(), "stand-in.toml")
	require.NoError(t, os.WriteFile(file, []byte(example), 0o600))
	out, code := runRowFile(t, dir, "-rowfile="+file, "-keep")
	require.Zero(t, code, out)
	line := regexp.MustCompile(`# kept: row stand-in: -attach engine=(\S+) -backend=.*; to end it: (kill -- -\d+; rm -rf '[^']+')\n`).FindStringSubmatch(out)
	require.NotNil(t, line, out)
	records, err := launch.Records(filepath.Join(dir, "cache", "running"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.True(t, records[0].Kept)
	t.Cleanup(func() {
		out, err := exec.Command("bash", "-c", line[2]).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})

	out, code = runRowFile(t, dir, "-attach=engine="+line[1], "-backend=lmcache")
	require.Zero(t, code, out)
	require.Regexp(t, `lmcache +unique .* observed +shared-server`, out)
}

// TestRowFileOfTheDocs: the example of docs/backends.md, as it stands there,
// benchmarks a server that the code knows nothing of, and the same server with
// a fault is found out.
func TestRowFileOfTheDocs(t *testing.T) {
	example, dir := exampleOfTheDocs(t)
	for _, c := range []struct {
		name, from, to string
		code           int
		want           string
	}{
		{"as it stands", "", "", 0, "stand-in    unique"},
		{"with a fault", `"-row=lmcache",`, `"-row=lmcache", "-fault=bit-flip",`, 1, "output-differs"},
		{"that does not start", `"-row=lmcache",`, `"-row=nonsense",`, 1, "engine ended: exit status 2"},
		{"that is not installed", `"kvproof", "mini"`, `"no-such-server"`, 0, "engine of row stand-in is not installed (no-such-server): go build"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, example, c.from)
			file := filepath.Join(t.TempDir(), "stand-in.toml")
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(example, c.from, c.to, 1)), 0o600))
			out, code := runRowFile(t, dir, "-rowfile="+file)
			require.Equal(t, c.code, code, out)
			require.Contains(t, out, c.want)
			left, err := filepath.Glob(filepath.Join(dir, "cache", "running", "*.json"))
			require.NoError(t, err)
			require.Empty(t, left, "every service is gone")
		})
	}
}

// exampleOfTheDocs is the first row file of docs/backends.md, and a directory
// with the server that it starts.
func exampleOfTheDocs(t *testing.T) (example, dir string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		harness.Missing(t, "go is not installed, and the server of the example has to be built.")
	}
	page, err := os.ReadFile("../docs/backends.md")
	if err != nil {
		harness.Missing(t, "docs/backends.md is not beside this binary: run the test in the repository.")
	}
	blocks, err := doctest.Blocks("docs/backends.md", page)
	require.NoError(t, err)
	i := slices.IndexFunc(blocks, func(b doctest.Block) bool { return b.Language == "toml" })
	require.GreaterOrEqual(t, i, 0)

	dir = t.TempDir()
	build, err := exec.Command("go", "build", "-o", filepath.Join(dir, "kvproof"), "../cmd/kvproof").CombinedOutput()
	require.NoError(t, err, "%s", build)
	return blocks[i].Text, dir
}

// runRowFile runs the suite with the directory's server on its PATH.
func runRowFile(t *testing.T, dir string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"-test.run=^$", "-test.bench=Serve$", "-test.v", "-results=" + filepath.Join(dir, "results"),
		"-blocksize=32", "-workload=unique", "-requests=2", "-concurrency=1", "-inputlen=100", "-outputlen=32",
	}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "KVPROOF_CACHE="+filepath.Join(dir, "cache"))
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	_ = cmd.Run() // its exit code is what counts
	return text.String(), cmd.ProcessState.ExitCode()
}
