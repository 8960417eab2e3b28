package bench_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/launch"
)

// noContainers skips what needs a container engine. -require is about the rows of
// the run: it fails where they are in containers.
func noContainers(t *testing.T, why error) {
	t.Helper()
	if strings.Contains(settings.Stack, "docker") {
		harness.Missing(t, "The docker stack is not tested: %v.", why)
	}
	t.Skipf("The docker stack is not tested: %v.", why)
}

// TestContainer: the example of docs/backends.md with its server in a container,
// made from nothing but the command, on a container engine that runs here.
func TestContainer(t *testing.T) {
	if err := launch.Preflight(t.Context(), launch.Needs{}); err != nil {
		noContainers(t, err)
	}
	example, dir := exampleOfTheDocs(t)
	static := filepath.Join(t.TempDir(), "kvproof")
	build := exec.Command("go", "build", "-tags=nogpu", "-o", static, "../cmd/kvproof")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	image := fmt.Sprintf("kvproof/bench-test-%d", os.Getpid())
	load := exec.Command("docker", "import", "-", image)
	load.Stdin = archive(t, static)
	if out, err = load.CombinedOutput(); err != nil {
		noContainers(t, fmt.Errorf("docker import: %w: %s", err, out))
	}
	t.Cleanup(func() {
		out, err := exec.Command("docker", "rmi", image).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	const command = `"kvproof", "mini", `
	require.Contains(t, example, command)
	contained := strings.Replace(strings.Replace(example, "argv = [", "[service.container]\nimage = \""+image+"\"\nentrypoint = [\"/kvproof\", \"mini\"]\nargv = [", 1), command, "", 1)
	// What follows argv belongs to the service, not to its container.
	begin := strings.Index(contained, "[service.container]")
	end := begin + strings.Index(contained[begin:], "]\nports")
	table := contained[begin : end+2]
	contained = strings.Replace(contained, table, "", 1)
	contained = strings.Replace(contained, "\n[[witness]]", "\n"+table+"\n[[witness]]", 1)
	for _, c := range []struct {
		name, from, to string
		args           []string
		code           int
		want           string
	}{
		{"as it is", "", "", nil, 0, "stand-in    unique"},
		{"that dies at its start", `"-row=lmcache",`, `"-row=nonsense",`, nil, 1, "engine ended: exit status 2"},
		{"without its image", image, "kvproof/no-such", nil, 0, "image kvproof/no-such: no such image; make images builds it"},
		{"with another image", image, "kvproof/no-such", []string{"-stack=docker", "-image=" + image}, 0, "stand-in    unique"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, contained, c.from)
			file := filepath.Join(t.TempDir(), "stand-in.toml")
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(contained, c.from, c.to, 1)), 0o600))
			out, code := runRowFile(t, dir, append(c.args, "-rowfile="+file)...)
			require.Equal(t, c.code, code, out)
			require.Contains(t, out, c.want)
			left, err := exec.Command("docker", "ps", "-aq", "--filter", "ancestor="+image).CombinedOutput()
			require.NoError(t, err, "%s", left)
			require.Empty(t, string(left), "no container survives")
		})
	}
	t.Run("kept", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "stand-in.toml")
		require.NoError(t, os.WriteFile(file, []byte(contained), 0o600))
		keeps(t, dir, file)
	})
}

// keeps leaves the row up and reaches it by the line that was printed; a run that
// sweeps what others have left leaves it, and it ends as that line says.
func keeps(t *testing.T, dir, file string) {
	t.Helper()
	out, code := runRowFile(t, dir, "-rowfile="+file, "-keep")
	require.Zero(t, code, out)
	line := regexp.MustCompile(`# kept: row stand-in: -attach engine=(\S+) -backend=.*; to end it: (docker rm -f \w+; rm -rf \S+)\n`).FindStringSubmatch(out)
	require.NotNil(t, line, out)
	t.Cleanup(func() {
		out, err := exec.Command("sh", "-c", line[2]).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	out, code = runRowFile(t, dir, "-rowfile="+file)
	require.Zero(t, code, out)
	out, code = runRowFile(t, dir, "-attach=engine="+line[1], "-backend=lmcache")
	require.Zero(t, code, out)
	require.Regexp(t, `lmcache +unique .* observed +shared-server`, out)
}

// archive is a tar of one file.
func archive(t *testing.T, path string) *bytes.Buffer {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: int64(len(data))}))
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &out
}
