package bench_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/gpu/standin"
	"github.com/kvproof/kvproof/harness/launch/enginetest"
)

// gpuEngine is the server of the docs' example as an engine on a GPU: it takes
// memory of the second one as long as it is up, and does not start where there is
// none left.
const gpuEngine = `#!/bin/sh
if grep -q '|60000|' DIR/gpus; then echo "No available memory for the cache blocks"; exit 1; fi
echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES" >>DIR/seen
cp DIR/taken DIR/gpus
DIR/kvproof "$@" &
trap 'kill $!; wait; cp DIR/free DIR/gpus; exit 0' TERM
wait
`

// TestGPU: the GPU is chosen once, all rows get it, a row starts when the memory
// of the one before is back, and the manifest says what GPU it was.
func TestGPU(t *testing.T) {
	example, dir := exampleOfTheDocs(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gpu-engine"), []byte(strings.ReplaceAll(gpuEngine, "DIR", dir)), 0o755))
	throttled := counting(strings.Replace(standin.GPUs(100, 60000), "0x0000000000000001\n1|", "0x1\n1|", 1))
	throttled = strings.Replace(throttled, "0x0000000000000001", "0x0000000000000040", 1)
	for name, table := range map[string]string{"free": standin.GPUs(100, 4), "taken": throttled} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(table), 0o600))
	}
	require.NoError(t, standin.Write(dir, standin.GPUs(100, 4), ""))
	var files []string
	for _, name := range []string{"first", "second"} {
		file := filepath.Join(t.TempDir(), name+".toml")
		text := strings.Replace(strings.Replace(example, `"kvproof", "mini"`, `"gpu-engine", "mini"`, 1), `row = "stand-in"`, `row = "`+name+`"`, 1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		files = append(files, file)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	out, code := runRowFile(t, dir, "-rowfile="+strings.Join(files, ","))
	require.Zero(t, code, out)
	require.Contains(t, out, "# plan: GPU 1 for all rows (-gpu=auto)")
	require.Contains(t, out, "# note: GPU 1 (Stand-in H100) is throttled by hw_thermal_slowdown, and was not before")
	require.Regexp(t, `first +unique .* gpu-throttled`, out)
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	require.NoError(t, err)
	require.Equal(t, "PCI_BUS_ID 1\nPCI_BUS_ID 1\n", string(seen))

	text, err := os.ReadFile(filepath.Join(onlyRun(t, filepath.Join(dir, "results")), "manifest.json"))
	require.NoError(t, err)
	var manifest artifact.Manifest
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Equal(t, "auto", manifest.GPU.Choice)
	require.Equal(t, []string{"1"}, manifest.GPU.IDs)
	require.Len(t, manifest.GPU.Start, 1)
	require.Equal(t, "Stand-in H100 580.95.05", manifest.GPU.Start[0].Name+" "+manifest.GPU.Start[0].Driver)
	require.EqualValues(t, 4, *manifest.GPU.Start[0].MemoryUsed)
	require.EqualValues(t, 60000, *manifest.GPU.End[0].MemoryUsed)
	require.Equal(t, []string{"hw_thermal_slowdown"}, manifest.GPU.End[0].Reasons)
	require.Len(t, manifest.Notes, 1)
}

// counting adds the counters of what holds clocks down to a table of GPUs: one that
// grows, and those that do not.
func counting(table string) string {
	head, rows, _ := strings.Cut(table, "\n")
	for _, name := range []string{"sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"} {
		head += "|clocks_event_reasons_counters." + name
	}
	return head + "\n" + strings.ReplaceAll(rows, "\n", "|grows|0|0|[N/A]|0\n")
}

// TestGPURefused: a choice that is wrong ends the run before anything starts.
func TestGPURefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, standin.Write(dir, standin.GPUs(100, 4), ""))
	dir += string(os.PathListSeparator) + os.Getenv("PATH")
	for _, c := range []struct {
		path, stack, value string
		args               []string
		want               string
	}{
		{dir, "process", "2", nil, `-gpu=2: there is no GPU "2"; nvidia-smi sees 0, 1`},
		{dir, "process", "best", nil, "-gpu=best: want auto, current, or the index of a GPU"},
		{dir, "docker", "2", nil, `-gpu=2: there is no GPU "2"`},
		{dir, "docker", "1", []string{"-keep", "-backend=baseline,lmcache"}, "-keep=true: a GPU has room for one engine: name the row to keep, e.g. -backend=baseline"},
		{dir, "mini", "0", nil, "-gpu=0: nothing of -stack=mini runs on a GPU"},
		{t.TempDir(), "process", "0", nil, "-gpu=0: nvidia-smi, which comes with NVIDIA's driver, is not on the PATH"},
	} {
		t.Run(fmt.Sprintf("%s on %s", c.value, c.stack), func(t *testing.T) {
			results := filepath.Join(t.TempDir(), "results")
			cmd := suite(t.Context(), append([]string{"-stack=" + c.stack, "-model=tiny", "-gpu=" + c.value, "-results=" + results}, c.args...)...)
			if c.stack == "mini" {
				cmd.Args = append(cmd.Args, "-model=mini")
			}
			cmd.Env = append(cmd.Env, "PATH="+c.path, "CUDA_VISIBLE_DEVICES=")
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), c.want)
			require.NoDirExists(t, results)
		})
	}
}

// TestGPUNeedsAModel: on a host that can have GPUs in containers the model must be
// given; on another, what the host lacks is said in its place.
func TestGPUNeedsAModel(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("This host has NVIDIA's driver.")
	}
	e, socket := &enginetest.Engine{}, filepath.Join(t.TempDir(), "docker.sock")
	stop, err := e.Listen(socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	smi := t.TempDir()
	require.NoError(t, standin.Write(smi, standin.GPUs(4), ""))
	smi += string(os.PathListSeparator) + os.Getenv("PATH")
	for _, c := range []struct {
		name, path string
		args       []string
		code       int
		want       string
	}{
		{"a GPU and no model", smi, nil, 2, "-model=: say which model the engines serve: -model=/path/of/a/model in Hugging Face's layout, or -model=tiny"},
		{"a GPU and a model", smi, []string{"-model=tiny"}, 0, "# missing: row baseline cannot run: image kvproof/vllm:0.32.0: no such image; make images builds it"},
		{"no GPU", t.TempDir(), nil, 0, "row baseline cannot run: no NVIDIA driver on this host, which the rows in containers need"},
		{"no GPU where one is required", t.TempDir(), []string{"-require"}, 1, "-require: row baseline cannot run: no NVIDIA driver on this host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := suite(t.Context(), append(c.args, "-stack=docker", "-backend=baseline", "-workload=unique", "-results="+t.TempDir())...)
			cmd.Env = append(cmd.Env, "PATH="+c.path, "DOCKER_HOST=unix://"+socket, "KVPROOF_CACHE="+t.TempDir())
			out, _ := cmd.CombinedOutput() // its exit code is what counts
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), c.want)
			require.NotContains(t, string(out), "no benchmark matches")
		})
	}
}
