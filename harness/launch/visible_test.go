package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu/standin"
)

const twoGPUs = "GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n"

// prints is what the commands of a table print; others are not in the image.
func prints(table map[string]string, code int) func([]string) (string, int, bool) {
	return func(argv []string) (string, int, bool) {
		out, ok := table[argv[0]]
		return out, code, ok
	}
}

// What was asked for is not what is there: a container that was to get GPUs is
// looked into before anybody waits for it.
func TestGPUsAreSeenInside(t *testing.T) {
	const none = "its container sees no GPU: install nvidia-container-toolkit on the host of the container engine, then restart the engine"
	for _, c := range []struct {
		name    string
		inside  map[string]string
		code    int
		devices *DeviceRequest
		want    string
	}{
		{"one of two", map[string]string{"nvidia-smi": twoGPUs}, 0, GPUs("1"), ""},
		{"all", map[string]string{"nvidia-smi": twoGPUs}, 0, GPUs(), ""},
		{"fewer", map[string]string{"nvidia-smi": twoGPUs}, 0, GPUs("0", "1", "2"), "its container sees 2 GPU, and 3 were asked for (0, 1, 2)"},
		{"a driver that does not answer", map[string]string{"nvidia-smi": "couldn't communicate with the NVIDIA driver"}, 9, GPUs(), none + "; asked inside: couldn't communicate with the NVIDIA driver"},
		{"none", map[string]string{"nvidia-smi": "No devices found."}, 0, GPUs(), none + "; asked inside: No devices found."},
		{"devices, without nvidia-smi", map[string]string{"ls": "null\nnvidia0\nnvidiactl\nnvidia-uvm\n"}, 0, GPUs("0"), ""},
		{"no devices", map[string]string{"ls": "null\nnvidiactl\nzero\n"}, 0, GPUs("0"), none},
		{"nothing to look with", nil, 0, GPUs("0"), none + "; asked inside: it has neither nvidia-smi"},
		{"none asked for", nil, 0, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, l := fakeEngine(t), launcher(t)
			f.Run = prints(c.inside, c.code)
			s, err := l.StartContainer(t.Context(), Container{
				Name: "engine", Image: "kvproof/vllm:1", Argv: []string{"serve"}, Log: filepath.Join(t.TempDir(), "log"), Devices: c.devices,
			})
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Contains(t, f.Asked(), "DELETE /containers/c1")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.devices != nil, slices.Contains(f.Asked(), "POST /containers/c1/exec"))
			require.NoError(t, s.Stop(t.Context()))
		})
	}
}

func TestExplainStart(t *testing.T) {
	for text, want := range map[string]string{
		`could not select device driver "nvidia" with capabilities: [[gpu]]`: "the container engine has no NVIDIA runtime: install nvidia-container-toolkit",
		"AMD CDI spec not found":                             "the container engine has no NVIDIA runtime: install nvidia-container-toolkit",
		"unresolvable CDI devices nvidia.com/gpu=7":          "the container engine knows no such GPU: nvidia-ctk cdi generate",
		"error setting rlimit type 8: not permitted":         "error setting rlimit type 8: not permitted",
		"exec: \"x\": executable file not found in $PATH":    "executable file not found",
		"error gathering device information: no such device": "error gathering device information",
	} {
		err := errors.New(text)
		require.ErrorContains(t, explainStart(err), want)
		require.ErrorIs(t, explainStart(err), err)
	}
	require.NoError(t, explainStart(nil))
}

// What is in the way of containers with a GPU is known before a row starts.
func TestPreflight(t *testing.T) {
	needs := Needs{Images: []string{"kvproof/vllm:1"}, GPUImage: "kvproof/vllm:1", Devices: GPUs("1")}
	smi := func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, standin.Write(dir, standin.GPUs(0, 0), ""))
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		t.Setenv("KVPROOF_CACHE", t.TempDir())
	}
	for _, c := range []struct {
		name   string
		inside map[string]string
		start  error
		want   string
	}{
		{"a GPU", map[string]string{"nvidia-smi": "GPU 1: NVIDIA H100 (UUID: GPU-2)\n"}, nil, ""},
		{"no runtime", nil, errors.New(`could not select device driver "nvidia" with capabilities: [[gpu]]`), "the container engine has no NVIDIA runtime: install nvidia-container-toolkit"},
		{"no GPU", map[string]string{"nvidia-smi": "No devices found.\n"}, nil, "its container sees no GPU: install nvidia-container-toolkit"},
		{"no nvidia-smi, which says nothing yet", nil, errors.New(`exec: "nvidia-smi": executable file not found in $PATH`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			smi(t)
			f := fakeEngine(t)
			f.Run, f.Started = prints(c.inside, 0), func(map[string]any) error { return c.start }
			for range 2 {
				err := Preflight(t.Context(), needs)
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.want)
				}
			}
			require.Len(t, f.Created(), 1, "it is asked once")
			require.Equal(t, []any{map[string]any{
				"Driver": "nvidia", "DeviceIDs": []any{"1"}, "Capabilities": []any{[]any{"gpu"}},
			}}, f.Created()[0]["HostConfig"].(map[string]any)["DeviceRequests"])
			require.Contains(t, f.Asked(), "DELETE /containers/c1")
		})
	}
	t.Run("no driver", func(t *testing.T) {
		if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
			t.Skip("This host has NVIDIA's driver.")
		}
		fakeEngine(t)
		t.Setenv("PATH", t.TempDir())
		require.ErrorContains(t, Preflight(t.Context(), needs), "no NVIDIA driver on this host")
		require.NoError(t, Preflight(t.Context(), Needs{Images: needs.Images}), "nothing else needs one")
	})
	t.Run("no image", func(t *testing.T) {
		smi(t)
		fakeEngine(t)
		require.ErrorContains(t, Preflight(t.Context(), Needs{Images: []string{"no/such:1"}}), "image no/such:1: no such image; make images builds it")
	})
}
