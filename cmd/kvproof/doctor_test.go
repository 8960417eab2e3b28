package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/launch/enginetest"
)

// doctor runs the command on a machine of the test's own making.
func doctor(t *testing.T) string {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"doctor"}, &out, &errs), "%s", &errs)
	require.Empty(t, errs.String())
	return out.String()
}

func TestDoctor(t *testing.T) {
	cache, bin := t.TempDir(), t.TempDir()
	t.Setenv("KVPROOF_CACHE", cache)
	t.Setenv("PATH", bin)
	socket := filepath.Join(t.TempDir(), "docker.sock")
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	install := func(path string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	}

	bare := doctor(t)
	for _, want := range []string{
		"no   the miniature stack", "go is not installed", "make is not installed: apt-get install make",
		"no   llama.cpp (-tags llamacpp)\n", ": make setup-llamacpp\n", ": make setup-vllm\n", ": make setup-lmcache\n",
		"no   containers\n", "no container engine answers at unix://" + socket + ": scripts/engine.sh up",
		"the container engine has no NVIDIA runtime: install nvidia-container-toolkit",
	} {
		require.Contains(t, bare, want)
	}
	require.NotContains(t, bare, "yes")

	for _, name := range []string{"go", "make"} {
		install(filepath.Join(bin, name))
	}
	install(filepath.Join(cache, "llamacpp", "bin", "python"))
	install(filepath.Join(cache, "vllm", "bin", "vllm"))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: http.NotFoundHandler()}
	go server.Serve(listener) // ends with Close
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	smi := "#!/bin/sh\necho 0, GPU-1, 81559, 4, 81555\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(smi), 0o755))
	some := doctor(t)
	require.NotContains(t, some, "no NVIDIA driver", "WSL has nvidia-smi alone")
	for _, want := range []string{"yes  the miniature stack", "yes  llama.cpp", "yes  vLLM on the CPU (-tags vllm)", "no   vLLM on the CPU with LMCache", "yes  containers\n"} {
		require.Contains(t, some, want)
	}
}

// What was kept is listed with how to end it, until it is gone.
func TestDoctorListsKeptContainers(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("KVPROOF_CACHE", cache)
	e := &enginetest.Engine{Images: []string{"mine:1"}, Answers: make(map[string]http.HandlerFunc)}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	stop, err := e.Listen(socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	l, err := launch.New("")
	require.NoError(t, err)
	s, err := l.StartContainer(t.Context(), launch.Container{Name: "engine", Image: "mine:1", Log: filepath.Join(cache, "log")})
	require.NoError(t, err)
	require.NoError(t, s.Keep())
	require.NoError(t, l.Close(t.Context()))
	require.Regexp(t, `up   engine, in a container of mine:1, since .*: kept by -keep; to end it: docker rm -f c1\n`, doctor(t))

	e.Answers["GET /containers/c1/json"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	require.NotContains(t, doctor(t), "mine:1")
}
