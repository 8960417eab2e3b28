package bench_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
)

// A deployment is a run of a built-in row of a real engine on stand-ins.
type deployment struct {
	out   string
	code  int
	notes map[string]note // of the services, by name
	given []string        // the environment of the run
	dirs  map[string]string
}

// deploy runs BenchmarkServe on a row by process, with stand-ins where its
// programs would be installed.
func deploy(t *testing.T, engine, row, lies string, args ...string) deployment {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	d := deployment{notes: make(map[string]note), dirs: map[string]string{"CACHE": t.TempDir(), "DASER": t.TempDir(), "NOTES": t.TempDir()}}
	for _, path := range []string{"CACHE/vllm/bin/vllm", "CACHE/lmcache/bin/lmcache", "CACHE/llamacpp/bin/python", "DASER/.venv/bin/python", "DASER/.venv/bin/vllm"} {
		root, below, _ := strings.Cut(path, "/")
		path = filepath.Join(d.dirs[root], below)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(self, path))
	}
	if lies != "" {
		require.NoError(t, os.WriteFile(filepath.Join(d.dirs["NOTES"], "lies.json"), []byte(lies), 0o600))
	}
	cmd := suite(t.Context(), append([]string{
		"-stack=engine=process", "-engine=" + engine, "-backend=" + row, "-model=tiny", "-results=" + t.TempDir(), "-daser=" + d.dirs["DASER"], "-test.v",
		"-blocksize=64", "-requests=3", "-concurrency=2", "-inputlen=400", "-outputlen=32", "-contextlen=1536",
	}, args...)...)
	cmd.Env = append(cmd.Env, "KVPROOF_CACHE="+d.dirs["CACHE"], standInVariable+"="+d.dirs["NOTES"])
	d.given = cmd.Env
	out, _ := cmd.CombinedOutput() // its exit code is what counts
	d.out, d.code = string(out), cmd.ProcessState.ExitCode()
	for _, name := range []string{"lmcache", "engine", "daser"} {
		if n, err := readNote(d.dirs["NOTES"], name); err == nil {
			d.notes[name] = n
		}
	}
	return d
}

var (
	portFlag  = regexp.MustCompile(`port$`)
	rowDir    = regexp.MustCompile(`[^\s"=]*/kvproof-\d+`)
	poolOfRow = regexp.MustCompile(`kvproof_row_\d+_\d+`)
)

// commands are the services as they were started, without what is another's each
// time: directories, ports, the launcher's mark.
func (d deployment) commands() string {
	ports := make(map[string]string)
	var text strings.Builder
	for _, name := range []string{"lmcache", "engine", "daser"} {
		n, ok := d.notes[name]
		if !ok {
			continue
		}
		for i, arg := range n.Argv[:len(n.Argv)-1] {
			if value := n.Argv[i+1]; portFlag.MatchString(arg) && ports[value] == "" {
				ports[value] = fmt.Sprintf("PORT%d", len(ports)+1)
			}
		}
		fmt.Fprintf(&text, "%s\n", name)
		for _, arg := range n.Argv {
			fmt.Fprintf(&text, "\t%s\n", arg)
		}
		for _, variable := range slices.Sorted(slices.Values(n.Env)) {
			if !slices.Contains(d.given, variable) && !strings.HasPrefix(variable, "KVP_SERVICE") && !strings.HasPrefix(variable, "SPT_NOENV") {
				fmt.Fprintf(&text, "\tenv %s\n", variable)
			}
		}
	}
	out := rowDir.ReplaceAllString(poolOfRow.ReplaceAllString(text.String(), "SHM"), "DIR")
	for name, dir := range d.dirs {
		out = strings.ReplaceAll(out, dir, name)
	}
	for port, name := range ports {
		out = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(out, name)
	}
	return out
}

// TestRecipes: every built-in row of a real engine, started by process: its
// programs get the arguments and the environment that its recipe says, the block
// size and the context in all places, and what they then serve is benchmarked.
func TestRecipes(t *testing.T) {
	for _, name := range builtIn(t) {
		engine, row, _ := strings.Cut(name, "/")
		t.Run(name, func(t *testing.T) {
			workload, want := "-workload=unique", ` +unique .* identical +proven`
			if row == "daser-chunk" {
				workload, want = "-workload=documents", ` +documents .* lossy +observed`
			}
			d := deploy(t, engine, row, "", workload)
			golden(t, filepath.Join("testdata", "recipes", engine+"-"+row+".txt"), d.commands())
			if engine == "llamacpp" {
				require.Contains(t, d.out, "there is no stand-in for", "CI runs the real one")
				return
			}
			require.Zero(t, d.code, d.out)
			require.Regexp(t, row+want, d.out)
		})
	}
}

// builtIn are the built-in rows of real engines, as engine/row.
func builtIn(t *testing.T) (rows []string) {
	t.Helper()
	const files = "../harness/recipe/files"
	paths, err := filepath.Glob(files + "/*/*.toml")
	require.NoError(t, err)
	if len(paths) == 0 {
		harness.Missing(t, "harness/recipe/files is not beside this binary: run the test in the repository.")
	}
	for _, path := range paths {
		row, err := filepath.Rel(files, strings.TrimSuffix(path, ".toml"))
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows
}

// TestRecipesReadBack: what a server runs with is read back, and what it was not
// asked for is refused.
func TestRecipesReadBack(t *testing.T) {
	for _, c := range []struct{ name, row, lies, want string }{
		{"the engine's blocks", "baseline", `{"--block-size": "32"}`, "block-size-ignored (start): -blocksize=64, but engine runs with 32"},
		{"the engine's context", "baseline", `{"--max-model-len": "1024"}`, "the engine has a context of 1024 tokens, asked for were 1536"},
		{"the engine's model", "baseline", `{"--served-model-name": "other"}`, "the engine does not serve tiny"},
		{"the cache's chunks", "lmcache", `{"--chunk-size": "128"}`, "block-size-ignored (start): -blocksize=64, but lmcache backend runs with 128"},
		{"DaseR's blocks", "daser-prefix", `{"--block-tokens": "32"}`, "block-size-ignored (start): -blocksize=64, but daser-prefix backend runs with 32"},
		{"DaseR's second tier", "daser-prefix", `{"--skip-l2": "no"}`, "DaseR has a second tier of 0 bytes, which nobody asked for"},
		{"DaseR's first tier", "daser-prefix", `{"--l1-size": "0gib"}`, "DaseR has a first tier of 0 bytes, asked for were 1073741824"},
		{"a DaseR that takes texts", "daser-chunk", `{"documents": "texts"}`, "this DaseR takes documents as texts alone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			workload := "-workload=unique"
			if c.row == "daser-chunk" {
				workload = "-workload=documents"
			}
			d := deploy(t, "vllm", c.row, c.lies, workload)
			require.NotZero(t, d.code, d.out)
			require.Contains(t, d.out, c.want)
			left, err := filepath.Glob(filepath.Join(d.dirs["CACHE"], "running", "*.json"))
			require.NoError(t, err)
			require.Empty(t, left, "every service is gone")
		})
	}
}

// TestDaseRIsNamed: a row with DaseR says what it needs, and a directory without
// is refused.
func TestDaseRIsNamed(t *testing.T) {
	d := deploy(t, "vllm", "daser-prefix", "", "-workload=unique", "-daser=")
	require.Zero(t, d.code, d.out)
	require.Contains(t, d.out, "engine of row daser-prefix is not installed: -daser=DIR names the environment in which you installed vLLM and a checkout of DaseR, which no registry has")
	require.Empty(t, d.notes)

	d = deploy(t, "vllm", "daser-prefix", "", "-workload=unique", "-daser="+t.TempDir())
	require.NotZero(t, d.code, d.out)
	require.Contains(t, d.out, "want a virtual environment in which vLLM and a checkout of DaseR are installed")
}

var update = flag.Bool("update", false, "write golden files anew")

// golden compares a text with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "if this is meant: go test -run %s -update", t.Name())
}
