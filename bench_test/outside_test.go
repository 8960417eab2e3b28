package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestDamageFromOutside: a script that knows nothing of the suite flips a byte
// in the store of a running `kvproof mini -unsafe` between cold and warm, and
// the run turns red; the same run left alone is green.
func TestDamageFromOutside(t *testing.T) {
	for _, tool := range []string{"go", "curl", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			harness.Missing(t, "%s is not installed, and a script outside the suite needs it.", tool)
		}
	}
	script, err := filepath.Abs("../scripts/flip-byte.sh")
	require.NoError(t, err)
	if _, err := os.Stat(script); err != nil {
		harness.Missing(t, "scripts/flip-byte.sh is not beside this binary: run the test in the repository.")
	}
	binary := filepath.Join(t.TempDir(), "kvproof")
	build, err := exec.Command("go", "build", "-o", binary, "../cmd/kvproof").CombinedOutput()
	require.NoError(t, err, "%s", build)

	endpoints := startMini(t, binary)
	damaged, findings := cycleOn(t, endpoints, func() {
		out, err := exec.Command("sh", script, endpoints.Backend).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "inverted byte")
	})
	require.NotEmpty(t, findings)
	require.Contains(t, []row.Code{row.OutputDiffers, row.LogprobShift, row.LogprobNull}, findings[0].Code, "%v", findings)
	require.Equal(t, damaged.Warm.Expected.Total.Min, damaged.Warm.HitTokens, "every counter says that all is well")

	_, findings = cycleOn(t, startMini(t, binary), func() {})
	require.Empty(t, findings)
}

// startMini runs the command until the test ends and reads its addresses off
// its first lines.
func startMini(t *testing.T, binary string) recipe.Endpoints {
	t.Helper()
	cmd := exec.Command(binary, "mini", "-row=lmcache", "-model=nano", "-unsafe", "-addr=127.0.0.1:0",
		fmt.Sprintf("-blocksize=%d", settings.BlockSize))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	})
	config := model.Nano()
	m, err := model.New(config)
	require.NoError(t, err)
	e := recipe.Endpoints{Model: "nano", Context: config.Context, Vocab: config.Vocab, TokenBytes: m.TokenBytes()}
	lines := bufio.NewScanner(out)
	for (e.Engine == "" || e.Backend == "") && lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch value = strings.TrimSpace(value); key {
		case "engine":
			e.Engine = value
		case "store":
			e.Backend = value
		}
	}
	require.NotEmpty(t, e.Engine)
	require.NotEmpty(t, e.Backend)
	return e
}

// cycleOn runs a proof on a server that somebody else started, with something
// happening just before its warm pass.
func cycleOn(t *testing.T, endpoints recipe.Endpoints, between func()) (run.Result, []row.Finding) {
	t.Helper()
	lmcache, err := recipe.On("lmcache", endpoints)
	require.NoError(t, err)
	b := settings.BlockSize
	server, err := lmcache.Start(t.Context(), row.Env{BlockSize: b, Concurrency: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
	require.Empty(t, run.Start(t.Context(), server, b))
	server.Client = &interrupting{Client: server.Client, before: sync.OnceFunc(between)}

	workload, err := fixtures.ByName("unique")
	require.NoError(t, err)
	params := fixtures.Params{
		Requests: 3, InputLen: 3*b + b/2, OutputLen: 32, BlockSize: b, Seed: 7,
		Context: endpoints.Context, Vocab: endpoints.Vocab,
	}
	if _, err := workload.Plan(params); err != nil {
		harness.Missing(t, "-blocksize=%d is too large for the nano model: %v.", b, err)
	}
	config := run.Config{Workload: workload, Params: params, Concurrency: 2, Exact: true, ProofRequests: 3}
	cell := run.NewCell(server, config.For(lmcache))
	proof, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	return proof.Result, findings
}

// interrupting lets something happen before the first request of a warm pass.
type interrupting struct {
	row.Client
	before func()
}

func (c *interrupting) Do(ctx context.Context, r row.Request) row.Timeline {
	if strings.Contains(r.ID, "-warm-") {
		c.before()
	}
	return c.Client.Do(ctx, r)
}
