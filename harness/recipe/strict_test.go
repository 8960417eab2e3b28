package recipe

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// TestStrictAsksForBatchInvariance: by the environment of vLLM in a container,
// which has a GPU. The CPU build cannot have it, and has one pinned thread.
func TestStrictAsksForBatchInvariance(t *testing.T) {
	for _, name := range []string{"baseline", "engine-cache", "engine-files", "lmcache"} {
		f, ok, err := builtIn("vllm", name)
		require.NoError(t, err)
		require.True(t, ok)
		for strict, want := range map[bool]string{true: "VLLM_BATCH_INVARIANT=1", false: "VLLM_BATCH_INVARIANT=0"} {
			d := &deployed{row: Deployment{Engine: "vllm", Strict: strict, Model: Model{Name: "m", Dir: "/m"}}.Row(f).(deployedRow)}
			vars, err := d.row.variables(row.Env{BlockSize: 128, Concurrency: 2}, "/d")
			require.NoError(t, err)
			for _, s := range f.Services {
				for i, port := range s.Ports {
					vars.port(s.Name, port, 1000+i, i == 0)
				}
			}
			require.NoError(t, vars.transferConfig(f.KVTransferConfig))
			for _, s := range f.Services {
				p, err := d.process(s, vars.of(s.Name))
				require.NoError(t, err)
				require.NotContains(t, strings.Join(p.Env, " "), "VLLM_BATCH_INVARIANT", name)
				c, err := d.container(s, p, vars.of(s.Name))
				require.NoError(t, err)
				require.Subset(t, c.Env, p.Env)
				require.Equal(t, s.Name == engineProbe, slices.Contains(c.Env, want), "%s of %s", s.Name, name)
			}
		}
	}
}

func TestBatchInvarianceIsReadBack(t *testing.T) {
	for body, want := range map[string]string{
		`{"vllm_env":{"VLLM_BATCH_INVARIANT":true}}`:  "on: GET /server_info has VLLM_BATCH_INVARIANT",
		`{"vllm_env":{"VLLM_BATCH_INVARIANT":false}}`: "off: GET /server_info has VLLM_BATCH_INVARIANT=0, so that -strict may call out what is the batch's",
		`{"vllm_env":{}}`: "not known, and taken for granted by -strict: GET /server_info has no VLLM_BATCH_INVARIANT",
		``:                "not known, and taken for granted by -strict: GET /server_info: HTTP 404",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body == "" || r.URL.Path != "/server_info" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		require.Equal(t, want, batchInvariant(t.Context(), server.URL, server.Client()))
	}
}
