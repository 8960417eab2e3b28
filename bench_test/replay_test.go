package bench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/run"
)

// TestRedCell: a cell that turned red says in one paragraph what was expected,
// seen and likely, and leaves what shows the difference again: kvproof replay
// asks once more and finds it, and finds nothing on a healthy row.
func TestRedCell(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		harness.Missing(t, "go is not installed, and kvproof has to be built: see https://go.dev/doc/install.")
	}
	results := t.TempDir()
	cell, _ := harness.StartCell(t, harness.TestCell{Row: "lmcache", Faults: []fault.Fault{fault.OtherRequest}, Results: results})
	proof, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, findings)

	text := run.Explain(proof.Result, proof.Result.Repro)
	t.Log(text)
	for _, want := range []string{
		"invalid: 4 × output-differs", "first found: output-differs, request lmcache-unique-0-warm-0, phase warm",
		"expected: 1536 of 1792 prompt tokens from the cache in the warm pass, and the answers of the cold pass",
		"seen: hit tokens by usage 1536, engine 1536, sources 1536, backend 1536, bytes 1536: all agree",
		"likely: KV of another prompt", "try: ask both ways", "again: go run ./cmd/kvproof replay " + proof.Result.Repro,
	} {
		if settings.BlockSize == 128 || want[0] != 'e' && want[0] != 's' { // numbers of blocks of 128
			require.Contains(t, text, want)
		}
	}
	require.DirExists(t, proof.Result.Repro)

	binary := filepath.Join(t.TempDir(), "kvproof")
	build, err := exec.Command("go", "build", "-o", binary, "../cmd/kvproof").CombinedOutput()
	require.NoError(t, err, "%s", build)
	replay := func(args ...string) (string, int) {
		out, err := exec.CommandContext(t.Context(), binary, append([]string{"replay"}, args...)...).CombinedOutput()
		var exit *exec.ExitError
		if err != nil {
			require.ErrorAs(t, err, &exit)
			return string(out), exit.ExitCode()
		}
		return string(out), 0
	}
	out, code := replay(proof.Result.Repro)
	require.Equal(t, 1, code, out)
	for _, want := range []string{"recorded: output-differs", "parts at token", "\n  cold [", "\n  warm [", "found again: invalid:"} {
		require.Contains(t, out, want)
	}
	out, code = replay("-healthy", filepath.Dir(proof.Result.Repro))
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "not found again: the verdict is identical")

	out, code = replay(results)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "replay.json")
	require.NoError(t, os.WriteFile(filepath.Join(results, "replay.json"), []byte("{"), 0o644))
	out, code = replay(results)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "unexpected end of JSON input")
	out, code = replay()
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "0 arguments: one directory is replayed")
}
