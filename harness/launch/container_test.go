package launch

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	docker "github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch/enginetest"
)

// fakeEngine has the launcher talk to a container engine that runs nothing.
func fakeEngine(t *testing.T) *enginetest.Engine {
	t.Helper()
	e := &enginetest.Engine{Images: []string{"kvproof/vllm:1"}, Answers: make(map[string]http.HandlerFunc)}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	stop, err := e.Listen(socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	return e
}

// The request for a GPU reaches the engine beside what dockertest knows, and no
// number is changed on its way.
func TestCreateRequest(t *testing.T) {
	f, l := fakeEngine(t), launcher(t)
	f.Started = func(map[string]any) error {
		return errors.New(`could not select device driver "nvidia" with capabilities: [[gpu]]`)
	}
	_, err := l.StartContainer(t.Context(), Container{
		Name: "engine", Image: "kvproof/vllm:1", Argv: []string{"serve", "tiny"}, Env: []string{"A=b"}, Log: filepath.Join(t.TempDir(), "log"),
		IPC: "host", ShmBytes: 9007199254740993, Binds: []string{"/models:/models:ro"}, Devices: GPUs("1"),
	})
	require.ErrorContains(t, err, `could not select device driver "nvidia"`)
	host := f.Created()[0]["HostConfig"].(map[string]any)
	require.Equal(t, []any{map[string]any{
		"Driver": "nvidia", "DeviceIDs": []any{"1"}, "Capabilities": []any{[]any{"gpu"}},
	}}, host["DeviceRequests"])
	require.Equal(t, json.Number("9007199254740993"), host["ShmSize"])
	require.Equal(t, "host", host["IpcMode"])
	require.Equal(t, "host", host["NetworkMode"])
	require.Equal(t, map[string]any{ownerLabel: l.owner.path(), placeLabel: placeOf(l.owner.path()).String()}, f.Created()[0]["Labels"])
	require.Equal(t, []any{"serve", "tiny"}, f.Created()[0]["Cmd"])
	require.Contains(t, f.Asked(), "DELETE /containers/c1", "what was created is removed when its start fails")
	require.Equal(t, &DeviceRequest{Driver: "nvidia", Count: -1, Capabilities: [][]string{{"gpu"}}}, GPUs())
}

func TestWithoutDevicesNothingIsAsked(t *testing.T) {
	f, l := fakeEngine(t), launcher(t)
	f.Started = func(map[string]any) error { return errors.New("no") }
	_, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.Error(t, err)
	require.NotContains(t, f.Created()[0]["HostConfig"], "DeviceRequests")
}

func TestContainerThatCannotBe(t *testing.T) {
	f, l := fakeEngine(t), launcher(t)
	_, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "no/such:1", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "image no/such:1: no such image; make images")
	require.NotContains(t, f.Asked(), "POST /images/create", "nothing is pulled")

	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "nobody.sock"))
	_, err = l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "no container engine at unix://")
	require.ErrorContains(t, err, "run scripts/engine.sh up")
}

// realEngine is a container engine that runs, with an image of nothing but this
// test binary, built without cgo.
func realEngine(t *testing.T) (client *docker.Client, image string) {
	t.Helper()
	client, err := connect(t.Context(), nil)
	if err != nil {
		if os.Getenv("KVPROOF_REQUIRE") != "" {
			t.Fatalf("required, but there is no container engine: %v", err)
		}
		t.Skipf("The real container engine is not tested: %v; scripts/engine.sh starts one.", err)
	}
	binary := filepath.Join(t.TempDir(), "standin")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	data, err := os.ReadFile(binary)
	require.NoError(t, err)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "standin", Mode: 0o755, Size: int64(len(data))}))
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "usr/bin/nvidia-smi", Linkname: "standin", Typeflag: tar.TypeLink, Mode: 0o755}))
	require.NoError(t, w.Close())
	name := fmt.Sprintf("kvproof/launch-test-%d", os.Getpid())
	require.NoError(t, client.ImportImage(docker.ImportImageOptions{Repository: name, Source: "-", InputStream: &archive, OutputStream: new(bytes.Buffer)}))
	t.Cleanup(func() { require.NoError(t, client.RemoveImage(name)) })
	return client, name
}

// skipWithoutRuntime skips where the engine refuses GPUs: one that scripts/engine.sh
// starts with ENGINE_GPU=stand-in takes them.
func skipWithoutRuntime(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "the container engine has no NVIDIA runtime") {
		return
	}
	if os.Getenv("KVPROOF_REQUIRE") != "" {
		t.Fatalf("required, but the container engine refuses GPUs: %v", err)
	}
	t.Skipf("GPUs in containers are not tested: %v; ENGINE_GPU=stand-in scripts/engine.sh up starts an engine that takes them.", err)
}

func ownContainers(t *testing.T, client *docker.Client, owner string) []docker.APIContainers {
	t.Helper()
	list, err := client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {ownerLabel + "=" + owner}}})
	require.NoError(t, err)
	return list
}

func TestRealContainer(t *testing.T) {
	client, image := realEngine(t)
	l := launcher(t)
	play := func(play string, args ...string) Container {
		return Container{
			Name: "engine", Image: image, Entrypoint: []string{"/standin"}, Argv: args, Env: []string{standIn + "=" + play},
			Log: filepath.Join(t.TempDir(), "log"), Grace: 5 * time.Second,
		}
	}
	t.Run("serves and stops", func(t *testing.T) {
		port := freePort(t)
		c := play("serve", strconv.Itoa(port))
		c.Ready = HTTP("http://" + address(port))
		s, err := l.StartContainer(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, ownContainers(t, client, l.owner.path()), 1)
		require.NoError(t, s.Stop(t.Context()))
		require.NoError(t, s.Stop(t.Context()))
		require.Empty(t, ownContainers(t, client, l.owner.path()))
		require.Equal(t, []string{"ending as asked"}, tail(c.Log))
	})
	t.Run("dies at once", func(t *testing.T) {
		c := play("die")
		c.Timeout, c.Ready = time.Hour, TCP(address(freePort(t))) // a wait for it would not end
		_, err := l.StartContainer(t.Context(), c)
		var died *DiedError
		require.ErrorAs(t, err, &died)
		require.Equal(t, 3, died.Code)
		require.Subset(t, died.Lines, []string{"loading weights", "no such device"})
		require.Empty(t, ownContainers(t, client, l.owner.path()))
	})
	t.Run("sees the GPUs that it was started with", func(t *testing.T) {
		c := play("hang")
		c.Devices = GPUs("1", "3")
		s, err := l.StartContainer(t.Context(), c)
		skipWithoutRuntime(t, err)
		require.NoError(t, err)
		out, code, err := s.exec(t.Context(), "nvidia-smi", "-L")
		require.NoError(t, err)
		require.Zero(t, code)
		require.Equal(t, "GPU 1: of the stand-in\nGPU 3: of the stand-in\n", out)
		_, code, err = s.exec(t.Context(), "no-such-command")
		require.True(t, notInImage(code, err), "%d, %v", code, err)
		require.NoError(t, s.Stop(t.Context()))
	})
	t.Run("sees no GPU", func(t *testing.T) {
		c := play("hang")
		c.Devices, c.Env = GPUs("1"), append(c.Env, blind+"=1")
		_, err := l.StartContainer(t.Context(), c)
		skipWithoutRuntime(t, err)
		require.ErrorContains(t, err, "its container sees no GPU: install nvidia-container-toolkit on the host of the container engine")
		require.ErrorContains(t, err, "asked inside: No devices found.")
		require.Empty(t, ownContainers(t, client, l.owner.path()))
	})
	t.Run("goes with its launcher", func(t *testing.T) {
		other, err := New(t.TempDir())
		require.NoError(t, err)
		_, err = other.StartContainer(t.Context(), play("hang"))
		require.NoError(t, err)
		require.Len(t, ownContainers(t, client, other.owner.path()), 1)
		require.NoError(t, other.Close(context.WithoutCancel(t.Context())))
		require.Empty(t, ownContainers(t, client, other.owner.path()))
	})
	t.Run("is swept when its run was killed", func(t *testing.T) {
		dir := t.TempDir()
		dead, err := New(dir)
		require.NoError(t, err)
		_, err = dead.StartContainer(t.Context(), play("hang"))
		require.NoError(t, err)
		require.NoError(t, dead.owner.release()) // as the kernel does for a run that was killed
		next, err := New(dir)
		require.NoError(t, err)
		_, err = next.StartContainer(t.Context(), Container{Name: "engine", Image: "no/such:1", Log: filepath.Join(dir, "log")})
		require.Error(t, err)
		require.Empty(t, ownContainers(t, client, dead.owner.path()))
		require.NoError(t, next.Close(t.Context()))
		for _, s := range dead.containers { // end what watches it
			require.NoError(t, errors.Join(s.Stop(t.Context())))
		}
	})
}

// What an earlier start has said in the same log is no refusal of this one.
func TestContainerReadsItsOwnPartOfTheLog(t *testing.T) {
	fakeEngine(t)
	l, log := launcher(t), filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("No common block size for 16\n"), 0o600))
	s, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: log, Refusal: []string{"No common block size"}})
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
}
