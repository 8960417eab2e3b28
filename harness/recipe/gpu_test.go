package recipe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu/standin"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/launch/enginetest"
	"github.com/kvproof/kvproof/harness/row"
)

// gpuHost is a machine with two GPUs, a container engine that hands them over, and
// the images of the rows. Every port that a container is given answers.
func gpuHost(t *testing.T) *enginetest.Engine {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, standin.Write(dir, standin.GPUs(0, 0), ""))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("KVPROOF_CACHE", t.TempDir())
	models := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the answer to everything
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","max_model_len":4096}],"vllm":true,"doc_id":"1"}`)
	})
	var servers sync.WaitGroup
	var mu sync.Mutex
	var listeners []net.Listener
	e := &enginetest.Engine{
		Images: []string{"kvproof/vllm:0.32.0", "kvproof/lmcache:0.5.6", "kvproof/daser:local"},
		Run: func(argv []string) (string, int, bool) {
			return "GPU 0: stand-in (UUID: GPU-1)\n", 0, argv[0] == "nvidia-smi"
		},
		Started: func(created map[string]any) error {
			argv, _ := created["Cmd"].([]any)
			for i, flag := range argv {
				if flag == "--socket-path" {
					answering(t, fmt.Sprint(argv[i+1]), framed(t, map[string]any{"runtime_config": map[string]any{
						"block_tokens": 128, "model_id": "m", "skip_l2": true, "l1_size_bytes": gibibyte,
					}}))
				}
				if !strings.HasSuffix(fmt.Sprint(flag), "-port") {
					continue
				}
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%v", argv[i+1]))
				if err != nil {
					return err
				}
				mu.Lock()
				listeners = append(listeners, l)
				mu.Unlock()
				servers.Go(func() { _ = http.Serve(l, models) })
			}
			return nil
		},
	}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	stop, err := e.Listen(socket)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, stop())
		mu.Lock()
		defer mu.Unlock()
		for _, l := range listeners {
			require.NoError(t, l.Close())
		}
		servers.Wait()
	})
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	return e
}

// TestEveryGPURowAsksForTheGPU: each container of each built-in row of vLLM gets the
// GPU that the run has chosen, and no other.
func TestEveryGPURowAsksForTheGPU(t *testing.T) {
	want := map[string][]string{
		"baseline": {"kvproof/vllm:0.32.0"}, "engine-cache": {"kvproof/vllm:0.32.0"}, "engine-files": {"kvproof/vllm:0.32.0"},
		"lmcache":      {"kvproof/lmcache:0.5.6", "kvproof/vllm:0.32.0"},
		"daser-prefix": {"kvproof/vllm:0.32.0", "kvproof/daser:local"}, "daser-chunk": {"kvproof/vllm:0.32.0", "kvproof/daser:local"},
	}
	names := Deployment{Engine: "vllm"}.names()
	require.Len(t, want, len(names), "%v", names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			e := gpuHost(t)
			l, err := launch.New("")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
			d := Deployment{
				Engine: "vllm", Docker: true, GPUs: []string{"1"}, Model: Model{Name: "m", Dir: t.TempDir(), Context: 4096},
				Launcher: func() (*launch.Launcher, error) { return l, nil },
			}
			r, err := d.build(name)
			require.NoError(t, err)
			require.False(t, Exact(r), "on a GPU the batch decides about bits")
			server, err := r.Start(t.Context(), row.Env{BlockSize: 128, Concurrency: 2, Dir: t.TempDir()})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
			require.Equal(t, "docker", server.Facts["stack"])
			argvs := []string{server.Facts["argv.engine"], server.Facts["argv.lmcache"], server.Facts["argv.daser"]}
			var images []string
			for i, created := range e.Created() {
				require.Equal(t, []any{map[string]any{
					"Driver": "nvidia", "DeviceIDs": []any{"1"}, "Capabilities": []any{[]any{"gpu"}},
				}}, created["HostConfig"].(map[string]any)["DeviceRequests"], "container %d of row %s", i, name)
				if i > 0 || fmt.Sprint(created["Entrypoint"]) != "[nvidia-smi]" { // the first one looks whether there is a GPU
					images = append(images, fmt.Sprint(created["Image"]))
					entrypoint, _ := created["Entrypoint"].([]any)
					command, _ := created["Cmd"].([]any)
					require.Contains(t, argvs, strings.TrimSuffix(fmt.Sprintln(slices.Concat(entrypoint, command)...), "\n"), "container %d of row %s", i, name)
				}
			}
			require.Equal(t, want[name], images)
		})
	}
}

// What a row file calls exact holds on a CPU; -strict has the GPU compute so, too.
func TestExactOnAGPU(t *testing.T) {
	f, ok, err := builtIn("vllm", "baseline")
	require.NoError(t, err)
	require.True(t, ok && f.Exact)
	require.True(t, Exact(Deployment{Engine: "vllm"}.Row(f)), "by process")
	require.True(t, Exact(Deployment{Engine: "vllm", Docker: true, Strict: true}.Row(f)))
	require.False(t, Exact(Deployment{Engine: "vllm", Docker: true}.Row(f)))
	f.Services[0].Container.GPU = false
	require.True(t, Exact(Deployment{Engine: "vllm", Docker: true}.Row(f)), "in a container without a GPU")
}
