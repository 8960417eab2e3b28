package bench_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/internal/doctest"
)

// TestRowFileOfTheDocs: the example of docs/backends.md, as it stands there,
// benchmarks a server that the code knows nothing of, and the same server with
// a fault is found out.
func TestRowFileOfTheDocs(t *testing.T) {
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
	example := blocks[i].Text

	dir := t.TempDir()
	build, err := exec.Command("go", "build", "-o", filepath.Join(dir, "kvproof"), "../cmd/kvproof").CombinedOutput()
	require.NoError(t, err, "%s", build)
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
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$", "-test.bench=Serve$", "-test.v", "-rowfile="+file,
				"-results="+filepath.Join(dir, "results"), "-blocksize=32", "-workload=unique", "-requests=2", "-concurrency=1", "-inputlen=100", "-outputlen=32")
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "KVPROOF_CACHE="+filepath.Join(dir, "cache"))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run() // its exit code is what counts
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s", &out)
			require.Contains(t, out.String(), c.want)
			left, err := filepath.Glob(filepath.Join(dir, "cache", "running", "*.json"))
			require.NoError(t, err)
			require.Empty(t, left, "every service is gone")
		})
	}
}
