package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/gpu/standin"
)

// smi puts a stand-in for nvidia-smi in front of the PATH.
func smi(t *testing.T, gpus, apps string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, standin.Write(dir, gpus, apps))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

// without takes nvidia-smi off the PATH.
func without(t *testing.T) { t.Setenv("PATH", t.TempDir()) }

func TestChoose(t *testing.T) {
	const hidden, unset = "", "unset"
	two := standin.GPUs(500, 30)
	small := strings.Replace(two, "|81559|30|81529|", "|24576|30|24546|", 1)
	for _, c := range []struct {
		name, gpus, visible, value string
		want                       []string
		err                        string
	}{
		{"the freest of equal ones", two, unset, "auto", []string{"1"}, ""},
		{"the largest, though more of it is in use", small, unset, "auto", []string{"0"}, ""},
		{"auto looks at all of them", two, "0", "auto", []string{"1"}, ""},
		{"an index", two, "1", "0", []string{"0"}, ""},
		{"an index that there is not", two, unset, "7", nil, `there is no GPU "7"; nvidia-smi sees 0, 1`},
		{"a negative one", two, unset, "-1", nil, "want auto, current, or the index"},
		{"no number", two, unset, "first", nil, "want auto, current, or the index"},
		{"nothing", two, unset, "", nil, "want auto, current, or the index"},
		{"current", two, "1", "current", []string{"1"}, ""},
		{"current of two", two, "1, 0", "current", []string{"1", "0"}, ""},
		{"current by UUID", two, "GPU-00000001", "current", []string{"GPU-00000001"}, ""},
		{"current that says nothing", two, unset, "current", nil, ""},
		{"current that hides all", two, hidden, "current", nil, "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"},
		{"current that there is not", two, "0,5", "current", nil, `CUDA_VISIBLE_DEVICES=0,5: there is no GPU "5"`},
		{"none at all", standin.GPUs(), unset, "auto", nil, "nvidia-smi sees no GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			smi(t, c.gpus, "")
			t.Setenv("CUDA_DEVICE_ORDER", "")
			t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
			if c.visible == unset {
				require.NoError(t, os.Unsetenv("CUDA_VISIBLE_DEVICES"))
			}
			choice, err := gpu.Choose(t.Context(), c.value)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, gpu.Choice{IDs: c.want, Made: true}, choice)

			require.NoError(t, choice.Pin())
			require.Equal(t, "PCI_BUS_ID", os.Getenv("CUDA_DEVICE_ORDER"))
			visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
			require.Equal(t, len(c.want) > 0, set, "current without a variable leaves it so")
			require.Equal(t, strings.Join(c.want, ","), visible)
		})
	}
}

// On a machine without a driver nothing is known, and nothing is pinned.
func TestWithoutNvidiaSMI(t *testing.T) {
	without(t)
	_, err := gpu.Choose(t.Context(), "auto")
	require.ErrorIs(t, err, gpu.ErrNone)
	_, err = gpu.Read(t.Context(), nil)
	require.ErrorIs(t, err, gpu.ErrNone)
	t.Setenv("CUDA_DEVICE_ORDER", "as it was")
	require.NoError(t, gpu.Choice{}.Pin())
	require.Equal(t, "as it was", os.Getenv("CUDA_DEVICE_ORDER"))
	require.Equal(t, "none", gpu.Choice{}.String())
}

func TestNvidiaSMIThatFails(t *testing.T) {
	dir := smi(t, "", "")
	text := "#!/bin/sh\necho \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"\nexit 9\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(text), 0o755))
	_, err := gpu.Choose(t.Context(), "auto")
	require.ErrorContains(t, err, "exit status 9: NVIDIA-SMI has failed")
}

func TestRead(t *testing.T) {
	smi(t, strings.Replace(standin.GPUs(4, 5), "|31|1|5|16|16|", "|[N/A]|[Not Supported]|5|16|16|", 1), "")
	all, err := gpu.Read(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Nil(t, all[0].Temperature, "what is not told is absent, and not 0")
	require.Nil(t, all[0].PCIeGen)
	one, err := gpu.Read(t.Context(), []string{"1"})
	require.NoError(t, err)
	require.Equal(t, all[1:], one)
	n := func(n int64) *int64 { return &n }
	require.Equal(t, gpu.Facts{
		Index: "1", UUID: "GPU-00000001-stand-in", BusID: "00000000:19:00.0", Name: "Stand-in H100", Driver: "580.95.05",
		MemoryTotal: n(81559), MemoryUsed: n(5), SMClock: n(345), SMClockMax: n(1980), MemoryClock: n(2619), MemoryClockMax: n(2619),
		Temperature: n(31), PCIeGen: n(1), PCIeGenMax: n(5), PCIeWidth: n(16), PCIeWidthMax: n(16), Reasons: []string{"gpu_idle"},
	}, one[0])
}

// The reasons have had two names, and their counters are newer than most drivers.
func TestReadOfOtherVersions(t *testing.T) {
	table := standin.GPUs(4)
	t.Run("before 535", func(t *testing.T) {
		smi(t, strings.NewReplacer("clocks_event_reasons.active", "clocks_throttle_reasons.active", "0x0000000000000001", "0x0000000000000044").Replace(table), "")
		facts, err := gpu.Read(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"sw_power_cap", "hw_thermal_slowdown"}, facts[0].Reasons)
	})
	t.Run("that tells no reasons", func(t *testing.T) {
		smi(t, strings.Replace(table, "clocks_event_reasons.active", "something.else", 1), "")
		facts, err := gpu.Read(t.Context(), nil)
		require.NoError(t, err)
		require.Nil(t, facts[0].Reasons)
		require.Equal(t, "Stand-in H100", facts[0].Name)
	})
	t.Run("with counters", func(t *testing.T) {
		head, body, _ := strings.Cut(table, "\n")
		counters, values := "", ""
		for i, name := range []string{"sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"} {
			counters += "|clocks_event_reasons_counters." + name
			values += []string{"|7", "|0 us", "|[N/A]", "|0", "|0"}[i]
		}
		smi(t, head+counters+"\n"+strings.TrimSuffix(body, "\n")+values+"\n", "")
		facts, err := gpu.Read(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"sw_power_cap": 7, "sync_boost": 0, "hw_thermal_slowdown": 0, "hw_power_brake_slowdown": 0}, facts[0].Throttled)
	})
}

func TestThrottling(t *testing.T) {
	facts := func(counted map[string]int64, active ...string) []gpu.Facts {
		return []gpu.Facts{{Index: "1", UUID: "u", Name: "H100", Reasons: active, Throttled: counted}}
	}
	us := func(n int64) map[string]int64 { return map[string]int64{"sw_power_cap": n} }
	for _, c := range []struct {
		name          string
		before, after []gpu.Facts
		want          []string
	}{
		{"none", facts(nil, "gpu_idle"), facts(nil), nil},
		{"clocks as they were set", facts(nil), facts(nil, "applications_clocks_setting", "gpu_idle"), nil},
		{"began", facts(nil, "gpu_idle"), facts(nil, "hw_thermal_slowdown"), []string{"GPU 1 (H100) is throttled by hw_thermal_slowdown, and was not before"}},
		{"was there", facts(nil, "sw_power_cap"), facts(nil, "sw_power_cap"), nil},
		{"counted", facts(us(1_000_000)), facts(us(3_500_000)), []string{"GPU 1 (H100) was throttled for 2.5 s by sw_power_cap"}},
		{"counted for the first time", facts(nil), facts(us(9)), nil},
		{"counted before", facts(us(9)), facts(us(9)), nil},
		{"the counter knows better than the moment", facts(us(9)), facts(us(9), "sw_power_cap"), nil},
		{"another GPU", nil, facts(us(9), "hw_slowdown"), nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, gpu.Throttling(c.before, c.after)) })
	}
}

func TestHolding(t *testing.T) {
	memory := func(used int64) gpu.Memory {
		return gpu.Memory{Index: "0", UUID: "u", Total: 1000, Used: used, Known: true}
	}
	before := []gpu.Memory{memory(100)}
	require.Empty(t, gpu.Holding(before, []gpu.Memory{memory(100 + gpu.Slack)}))
	require.Empty(t, gpu.Holding(before, []gpu.Memory{memory(20)}), "another program may have ended")
	require.Len(t, gpu.Holding(before, []gpu.Memory{memory(101 + gpu.Slack)}), 1)
	require.Empty(t, gpu.Holding(before, []gpu.Memory{{Index: "0", UUID: "u"}}), "a GPU that does not say")
}

// The wait ends when the memory is back, and says who holds it when it is not.
func TestGivenBack(t *testing.T) {
	dir := smi(t, standin.GPUs(4, 9), "")
	choice, err := gpu.Choose(t.Context(), "1")
	require.NoError(t, err)
	before, err := choice.Memories(t.Context())
	require.NoError(t, err)
	require.Len(t, before, 1)

	var shown []string
	wait := gpu.Wait{Choice: choice, Before: before, Timeout: time.Minute, Every: time.Second, Show: func(line string) {
		shown = append(shown, line)
		if len(shown) == 3 {
			require.NoError(t, standin.Write(dir, standin.GPUs(70000, 12), ""))
		}
	}}
	require.NoError(t, standin.Write(dir, standin.GPUs(70000, 60000), ""))
	synctest.Test(t, func(t *testing.T) { require.NoError(t, wait.GivenBack(t.Context())) })
	require.Len(t, shown, 3)
	require.Equal(t, "waiting until GPU 1 has its memory back: 60000 of 81559 MiB in use", shown[0])

	require.NoError(t, standin.Write(dir, standin.GPUs(70000, 60000),
		"GPU-00000000-stand-in, 17, python3, 69000\nGPU-00000001-stand-in, 4242, VLLM::EngineCore, 59000\n"))
	synctest.Test(t, func(t *testing.T) {
		err := wait.GivenBack(t.Context())
		require.ErrorContains(t, err, "GPU 1 has 60000 MiB in use 1m0s after the row before has ended, and had 9 before the first row; on it: process 4242 (VLLM::EngineCore) with 59000 MiB: end that")
		require.NotContains(t, err.Error(), "17")
	})
}
