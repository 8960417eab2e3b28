package launch

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	docker "github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/require"
)

// A fakeEngine is a container engine behind a Unix socket that answers what a
// test lets it and keeps what it was asked.
type fakeEngine struct {
	mu     sync.Mutex
	asked  []string
	create map[string]any
	answer map[string]func(http.ResponseWriter) // by method and path
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	f.mu.Lock()
	f.asked = append(f.asked, key)
	if r.URL.Path == "/containers/create" {
		decoder := json.NewDecoder(r.Body)
		decoder.UseNumber()
		_ = decoder.Decode(&f.create)
	}
	answer := f.answer[key]
	f.mu.Unlock()
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w)
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	say := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	f := &fakeEngine{answer: map[string]func(http.ResponseWriter){
		"GET /_ping":                      say("OK"),
		"GET /version":                    say(`{"ApiVersion":"1.41"}`),
		"GET /containers/json":            say(`[]`),
		"GET /images/kvproof/vllm:1/json": say(`{"Id":"sha256:1"}`),
		"POST /containers/create":         func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated); fmt.Fprint(w, `{"Id":"abc"}`) },
	}}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: f}
	go server.Serve(listener) // ends with Close
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	return f
}

// The request for a GPU reaches the engine beside what dockertest knows, and no
// number is changed on its way.
func TestCreateRequest(t *testing.T) {
	f, l := newFakeEngine(t), launcher(t)
	f.answer["POST /containers/abc/start"] = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"message":"could not select device driver \"nvidia\" with capabilities: [[gpu]]"}`)
	}
	_, err := l.StartContainer(t.Context(), Container{
		Name: "engine", Image: "kvproof/vllm:1", Argv: []string{"serve", "tiny"}, Env: []string{"A=b"}, Log: filepath.Join(t.TempDir(), "log"),
		IPC: "host", ShmBytes: 9007199254740993, Binds: []string{"/models:/models:ro"}, Devices: GPUs("1"),
	})
	require.ErrorContains(t, err, `could not select device driver "nvidia"`)
	host := f.create["HostConfig"].(map[string]any)
	require.Equal(t, []any{map[string]any{
		"Driver": "nvidia", "DeviceIDs": []any{"1"}, "Capabilities": []any{[]any{"gpu"}},
	}}, host["DeviceRequests"])
	require.Equal(t, json.Number("9007199254740993"), host["ShmSize"])
	require.Equal(t, "host", host["IpcMode"])
	require.Equal(t, "host", host["NetworkMode"])
	require.Equal(t, map[string]any{ownerLabel: l.owner.path()}, f.create["Labels"])
	require.Equal(t, []any{"serve", "tiny"}, f.create["Cmd"])
	require.Contains(t, f.asked, "DELETE /containers/abc", "what was created is removed when its start fails")
	require.Equal(t, &DeviceRequest{Driver: "nvidia", Count: -1, Capabilities: [][]string{{"gpu"}}}, GPUs())
}

func TestWithoutDevicesNothingIsAsked(t *testing.T) {
	f, l := newFakeEngine(t), launcher(t)
	f.answer["POST /containers/abc/start"] = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	_, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.Error(t, err)
	require.NotContains(t, f.create["HostConfig"], "DeviceRequests")
}

func TestContainerThatCannotBe(t *testing.T) {
	f, l := newFakeEngine(t), launcher(t)
	f.answer["GET /images/no/such:1/json"] = func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }
	_, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "no/such:1", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "image no/such:1: no such image; make images")
	require.NotContains(t, f.asked, "POST /images/create", "nothing is pulled")

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
	require.NoError(t, w.Close())
	name := fmt.Sprintf("kvproof/launch-test-%d", os.Getpid())
	require.NoError(t, client.ImportImage(docker.ImportImageOptions{Repository: name, Source: "-", InputStream: &archive, OutputStream: new(bytes.Buffer)}))
	t.Cleanup(func() { require.NoError(t, client.RemoveImage(name)) })
	return client, name
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

// A run removes what nobody owns any more, and not what it may not look at: the
// locks of other users.
func TestContainersOfOthersStay(t *testing.T) {
	f, l := newFakeEngine(t), launcher(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	list, err := json.Marshal([]map[string]any{
		{"Id": "gone", "Labels": map[string]string{ownerLabel: filepath.Join(t.TempDir(), "run-gone.lock")}},
		{"Id": "hidden", "Labels": map[string]string{ownerLabel: filepath.Join(file, "run-hidden.lock")}}, // opening it fails otherwise
	})
	require.NoError(t, err)
	f.answer["GET /containers/json"] = func(w http.ResponseWriter) { _, _ = w.Write(list) }
	s, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
	require.Contains(t, f.asked, "DELETE /containers/gone")
	require.NotContains(t, f.asked, "DELETE /containers/hidden")
}

// What an earlier start has said in the same log is no refusal of this one.
func TestContainerReadsItsOwnPartOfTheLog(t *testing.T) {
	newFakeEngine(t)
	l, log := launcher(t), filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("No common block size for 16\n"), 0o600))
	s, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: log, Refusal: []string{"No common block size"}})
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
}
