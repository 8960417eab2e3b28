package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/kvproof/kvproof/harness/artifact"
)

// small is the smallest run that proves anything.
var small = []string{"-model=nano", "-blocksize=16", "-requests=3", "-inputlen=64", "-outputlen=32"}

// suite runs this test binary as go test would, for benchmarks only.
func suite(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-test.run=^$", "-test.bench=Serve$", "-test.timeout=10m0s", "-stack=mini"}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KVPROOF_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// TestRefused: bad input is refused before anything starts, by a message that
// names the flag, its value and what is right.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	require.NoError(t, os.WriteFile(trace, []byte(`{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[0]}`+"\nno json\n"), 0o644))
	results := filepath.Join(dir, "results")

	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"unknown row", []string{"-backend=nope"}, []string{`-backend=nope`, `"nope"`, "baseline, lmcache, daser-chunk, daser-prefix"}},
		{"old alias", []string{"-backend=vllm"}, []string{"-backend=vllm", "old spelling", "write baseline"}},
		{"old alias of two", []string{"-backend=daser"}, []string{"daser-prefix or daser-chunk"}},
		{"old name of all", []string{"-backend=all-openai"}, []string{"-backend=all-openai", "old spelling"}},
		{"duplicate row", []string{"-backend=lmcache,baseline,lmcache"}, []string{"lmcache is listed twice"}},
		{"all in a list", []string{"-backend=all,lmcache"}, []string{"all cannot be part of a list"}},
		{"empty list", []string{"-backend="}, []string{"-backend=", `unknown row ""`}},
		{"row not built", []string{"-backend=baseline,engine-files"}, []string{"row engine-files is not built for this stack"}},
		{"block size zero", []string{"-blocksize=0"}, []string{"-blocksize=0", "positive"}},
		{"block size negative", []string{"-blocksize=-16"}, []string{"-blocksize=-16", "positive"}},
		{"block size too large", []string{"-blocksize=4096"}, []string{"-blocksize=4096"}},
		{"concurrency negative", []string{"-concurrency=-1"}, []string{"-concurrency=-1"}},
		{"concurrency zero", []string{"-concurrency=0"}, []string{"-concurrency=0"}},
		{"rate zero", []string{"-rate=0"}, []string{"-rate=0", "want inf"}},
		{"rate negative", []string{"-rate=-2"}, []string{"-rate=-2"}},
		{"rate not a number", []string{"-rate=nan"}, []string{"-rate=nan"}},
		{"another infinity", []string{"-rate=infinity"}, []string{"-rate=infinity", "want inf"}},
		{"rate out of range", []string{"-rate=1e999"}, []string{"-rate=1e999"}},
		{"arrivals of a trace for another client", []string{"-rate=trace", "-loader=vllm-bench", "-backend=baseline"}, []string{"-rate=trace", "makes its own arrivals"}},
		{"arrivals of no trace", []string{"-rate=trace", "-workload=unique"}, []string{"-rate=trace", "none of -workload=unique is one"}},
		{"arrivals of one that is not", []string{"-rate=trace", "-workload=unique,trace"}, []string{"-rate=trace", "workload unique has no arrivals"}},
		{"burstiness of a trace", []string{"-rate=trace", "-burstiness=2"}, []string{"-burstiness=2", "those of the trace"}},
		{"time scale zero", []string{"-rate=trace", "-timescale=0"}, []string{"-timescale=0"}},
		{"time scale of no trace", []string{"-timescale=2"}, []string{"-timescale=2", "-rate=trace"}},
		{"length scale too small", []string{"-workload=trace", "-lengthscale=0.001"}, []string{"-lengthscale=0.001", "want at least"}},
		{"length scale of no trace", []string{"-workload=unique", "-lengthscale=2"}, []string{"-lengthscale=2", "it is for traces"}},
		{"window that is none", []string{"-workload=trace", "-window=30s"}, []string{"-window=30s", "FROM:TO"}},
		{"window without a unit", []string{"-workload=trace", "-window=30:60"}, []string{"-window=30:60", "FROM:TO"}},
		{"empty window", []string{"-workload=trace", "-window=60s:30s"}, []string{"-window=60s:30s", "it is empty"}},
		{"window without rows", []string{"-workload=trace", "-window=1h:"}, []string{"-requests=8", "in the window 1h0m0s:"}},
		{"prefix of no random prompts", []string{"-prefixlen=8"}, []string{"-prefixlen=8", "it is for workload random"}},
		{"prefix below nothing", []string{"-workload=random", "-prefixlen=-8"}, []string{"-prefixlen=-8", "0 or more"}},
		{"range of everything", []string{"-workload=random", "-rangeratio=1"}, []string{"-rangeratio=1", "below 1"}},
		{"share above all", []string{"-prefixratio=0.5,1.5"}, []string{"-prefixratio=0.5,1.5", `"1.5" is no share`}},
		{"share twice", []string{"-prefixratio=0.5,0.50"}, []string{"there twice"}},
		{"share of no prefix", []string{"-workload=unique", "-prefixratio=1"}, []string{"-prefixratio=1", "it is for workload shared-prefix"}},
		{"no turns", []string{"-workload=multi-turn", "-turns=0"}, []string{"-turns=0"}},
		{"turns of nothing", []string{"-workload=unique", "-turns=2"}, []string{"-turns=2", "it is for workload multi-turn"}},
		{"more turns than fit", []string{"-workload=multi-turn", "-turns=20"}, []string{"-inputlen=1024", "workload multi-turn"}},
		{"burstiness zero", []string{"-burstiness=0"}, []string{"-burstiness=0", "Poisson"}},
		{"burstiness not a number", []string{"-burstiness=nan"}, []string{"-burstiness=NaN"}},
		{"no requests", []string{"-requests=0"}, []string{"-requests=0"}},
		{"input too long", []string{"-inputlen=5000"}, []string{"-inputlen=5000"}},
		{"output negative", []string{"-outputlen=-1"}, []string{"-outputlen=-1"}},
		{"unknown workload", []string{"-workload=nope"}, []string{"-workload=nope", "unique, shared-prefix"}},
		{"duplicate workload", []string{"-workload=unique,unique"}, []string{"unique is listed twice"}},
		{"all in a workload list", []string{"-workload=all,unique"}, []string{"all cannot be part of a list"}},
		{"unknown stack", []string{"-stack=cloud"}, []string{"-stack=cloud", "unknown stack"}},
		{"stack that there is not", []string{"-stack=engine=mini,lmcache=docker"}, []string{"-stack=engine=mini,lmcache=docker", "by process"}},
		{"real engine with the built-in model", []string{"-stack=docker", "-model=mini"}, []string{"-model=mini", "want tiny, or a directory"}},
		{"image of no container", []string{"-image=mine:1"}, []string{"-image=mine:1", "add -stack=docker"}},
		{"image of unknown service", []string{"-stack=docker", "-model=tiny", "-image=disk=mine:1"}, []string{"-image=disk=mine:1", "daser, engine, lmcache"}},
		{"image of a service of other rows", []string{"-stack=docker", "-model=tiny", "-backend=baseline", "-image=lmcache=mine:1"}, []string{"-image=lmcache=mine:1: no row of this run has lmcache in a container; there are engine"}},
		{"stack of unknown service", []string{"-stack=disk=mini"}, []string{"unknown service"}},
		{"unknown model", []string{"-model=gpt"}, []string{"-model=gpt", "mini and nano"}},
		{"missing trace", []string{"-workload=trace", "-data=" + filepath.Join(dir, "none")}, []string{"-data=" + filepath.Join(dir, "none"), "no such file"}},
		{"unreadable trace", []string{"-workload=trace", "-data=" + trace}, []string{trace + ":2"}},
		{"a data set that is not shipped", []string{"-workload=imdb"}, []string{"-workload=imdb", "-data=PATH"}},
		{"unreadable data set", []string{"-workload=custom", "-data=" + trace}, []string{trace + ":1", "field prompt"}},
		{"data that nothing reads", []string{"-workload=unique", "-data=" + trace}, []string{"-data=" + trace, "no workload of -workload=unique reads a file"}},
		{"data that two would read", []string{"-workload=trace,text", "-data=" + trace}, []string{"trace and text would all read it"}},
		{"subsets of something else", []string{"-workload=text", "-subsets=qasper"}, []string{"-subsets=qasper", "only -workload=longbench"}},
		{"unknown chat", []string{"-workload=text", "-chat=maybe"}, []string{"-chat=maybe", "on, off or auto"}},
		{"chat without text", []string{"-workload=unique", "-chat=off"}, []string{"-chat=off", "-workload=unique is made of text"}},
		{"repeats without text", []string{"-workload=unique", "-dedup=false"}, []string{"-dedup=false", "-workload=unique is made of text"}},
		{"context beyond the model's", []string{"-contextlen=5000"}, []string{"-contextlen=5000", "1 to 4096"}},
		{"more text than there is", []string{"-workload=text", "-requests=900"}, []string{"-requests=900", "workload text"}},
		{"no room for text", []string{"-workload=text", "-inputlen=100"}, []string{"-inputlen=100", "the shortest paragraph"}},
		{"sampling below nothing", []string{"-temperature=-1"}, []string{"-temperature=-1"}},
		{"sampling from nothing", []string{"-topp=0"}, []string{"-topp=0", "at most 1"}},
		{"no wait at all", []string{"-requesttimeout=0s"}, []string{"-requesttimeout=0s"}},
		{"negative batch", []string{"-maxseqs=-1"}, []string{"-maxseqs=-1"}},
		{"size without a unit that exists", []string{"-evict", "-maxl1=3gg"}, []string{"-maxl1=3gg", "kib"}},
		{"limit of tiers without tiers", []string{"-maxl2=3gib"}, []string{"-maxl2=3gib", "only -evict"}},
		{"less than a prompt needs", []string{"-evict", "-maxl1=1kib", "-workload=unique"}, []string{"-evict", "workload unique", "L1 has no room for the largest prompt"}},
		{"unknown loader", []string{"-loader=wrk"}, []string{"-loader=wrk", "internal or vllm-bench"}},
		{"loader that cannot ask documents", []string{"-loader=vllm-bench", "-backend=lmcache,daser-chunk"}, []string{"-loader=vllm-bench", "row daser-chunk", "/documents and /infer", "-backend=baseline,lmcache,daser-prefix"}},
		{"the same in all", []string{"-loader=vllm-bench"}, []string{"row daser-chunk of -backend=all"}},
		{"loader with a workload", []string{"-loader=vllm-bench", "-backend=lmcache", "-workload=unique"}, []string{"-workload=unique", "makes its own prompts"}},
		{"loader of a marked file", []string{"-loader=vllm-bench", "-backend=lmcache", "-workload=custom", "-data=" + trace}, []string{"-workload=custom", "-verbatim is needed"}},
		{"loader of a trace's arrivals", []string{"-loader=vllm-bench", "-backend=lmcache", "-rate=trace"}, []string{"-rate=trace", "no arrivals of a trace"}},
		{"verbatim without emptying", []string{"-backend=daser-prefix", "-workload=text", "-verbatim"}, []string{"-verbatim=true", "row daser-prefix", "cannot be emptied"}},
		{"verbatim without text", []string{"-backend=lmcache", "-workload=unique", "-verbatim"}, []string{"-verbatim=true", "only workloads of text"}},
		{"vllm that is not there", []string{"-loader=vllm-bench", "-backend=lmcache", "-vllm=/nowhere/vllm"}, []string{"looking for vllm", "/nowhere/vllm"}},
		{"prefix below nothing", []string{"-prefixlen=-1"}, []string{"-prefixlen=-1"}},
		{"range of everything", []string{"-rangeratio=1"}, []string{"-rangeratio=1", "below 1"}},
		{"results below a file", []string{"-results=" + filepath.Join(trace, "x")}, []string{"-results=" + filepath.Join(trace, "x"), "not a directory"}},
		{"more than memory holds", []string{"-workload=unique", "-requests=60000"}, []string{"-requests=60000", "available memory", "-evict"}},
		{"row without a workload", []string{"-backend=daser-chunk", "-workload=unique"}, []string{"-workload=unique", "none of them applies to row daser-chunk"}},
		{"a word among the flags", []string{"-workload=unique", "junk", "-backend=lmcache"}, []string{`argument "junk"`}},
		{"service listed twice", []string{"-stack=engine=mini,engine=mini"}, []string{"-stack=", "engine is listed twice"}},
		{"several at once", []string{"-blocksize=0", "-backend=nope"}, []string{"-blocksize=0", "-backend=nope"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			if !strings.Contains(strings.Join(args, " "), "-results") {
				args = append([]string{"-results=" + results}, args...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // what is not refused runs on
			defer cancel()
			var stdout, stderr bytes.Buffer
			cmd := suite(ctx, args...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &exit)
			require.Equal(t, 2, exit.ExitCode())
			for _, want := range test.want {
				require.Contains(t, stderr.String(), want)
			}
			require.Empty(t, stdout.String(), "nothing may start, and nothing look like a result")
			require.NoDirExists(t, results)
		})
	}
}

// TestEnvironment: a flag beats its variable, which beats the default.
func TestEnvironment(t *testing.T) {
	run := func(args ...string) string {
		var stderr bytes.Buffer
		cmd := suite(t.Context(), args...)
		cmd.Env = append(cmd.Env, "KVPROOF_BLOCKSIZE=-7", "KVPROOF_REQUESTS=many")
		cmd.Stderr = &stderr
		require.Error(t, cmd.Run())
		return stderr.String()
	}
	require.Contains(t, run(), "-blocksize=-7")
	require.Contains(t, run(), "KVPROOF_REQUESTS=many")
	require.Contains(t, run("-blocksize=-8"), "-blocksize=-8")

	var stderr bytes.Buffer
	cmd := suite(t.Context())
	cmd.Env = append(cmd.Env, "KVPROOF_BLOCK_SIZE=32")
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "KVPROOF_BLOCK_SIZE=32: no flag has this variable")
}

// TestCount: three samples of a cell are three cycles on fresh content and one
// proof; benchfmt reads every line.
func TestCount(t *testing.T) {
	results := t.TempDir()
	args := append([]string{"-test.count=3", "-backend=baseline,lmcache", "-workload=unique,shared-prefix", "-results=" + results}, small...)
	var stderr bytes.Buffer
	cmd := suite(t.Context(), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, stderr.String())
	require.Empty(t, stderr.String())

	var names []string
	reader := benchfmt.NewReader(bytes.NewReader(out), "out")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			require.Fail(t, record.Error())
		case *benchfmt.Result:
			names = append(names, string(record.Name))
			require.Equal(t, 1, record.Iters)
			for _, unit := range []string{"cold-p50-ttft-sec", "warm-p50-ttft-sec", "hit-%", "cold-hit-%", "match-%"} {
				_, ok := record.Value(unit)
				require.True(t, ok, "%s has no %s", record.Name, unit)
			}
			require.Equal(t, "mini", record.GetConfig("stack"))
		}
	}
	require.NoError(t, reader.Err())
	require.Len(t, names, 2*2*3)
	for i, backend := range []string{"baseline", "lmcache"} {
		for j, workload := range []string{"unique", "shared-prefix"} {
			for sample := range 3 {
				want := fmt.Sprintf("Serve/backend=%s/block=16/workload=%s", backend, workload)
				require.Contains(t, names[(2*i+j)*3+sample], want, "samples of a cell follow each other")
			}
		}
	}

	cell := filepath.Join(onlyRun(t, results), "lmcache", "block-16", "unique")
	entries, err := os.ReadDir(cell)
	require.NoError(t, err)
	var found []string
	first := make(map[string]bool)
	for _, e := range entries {
		found = append(found, e.Name())
		if strings.HasPrefix(e.Name(), "cycle-") {
			data, err := os.ReadFile(filepath.Join(cell, e.Name(), "cold.requests.jsonl"))
			require.NoError(t, err)
			var request artifact.Request
			require.NoError(t, json.NewDecoder(bytes.NewReader(data)).Decode(&request))
			first[fmt.Sprint(request.TokenIDs)] = true
		}
	}
	require.Equal(t, []string{"cycle-1", "cycle-2", "cycle-3", "proof"}, found)
	require.Len(t, first, 3, "each cycle has content of its own, so answers of its own")
}

// TestInterrupt: after a signal the samples so far are on disk, no port is
// left and the exit code says that the run did not end well.
func TestInterrupt(t *testing.T) {
	results := t.TempDir()
	args := append([]string{"-test.bench=^BenchmarkServe$", "-test.count=1000", "-backend=lmcache", "-workload=unique", "-results=" + results}, small...)
	var output bytes.Buffer
	cmd := suite(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	samples := func() int {
		matches, err := filepath.Glob(filepath.Join(results, "run_*", "samples.jsonl"))
		if err != nil || len(matches) == 0 {
			return 0
		}
		data, err := os.ReadFile(matches[0])
		if err != nil {
			return 0
		}
		return bytes.Count(data, []byte("\n"))
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test ends before the process does
	require.Eventually(t, func() bool { return samples() >= 2 }, 3*time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", output.String())
	require.Positive(t, exit.ExitCode(), "ended by itself, not by the signal")
	require.Contains(t, output.String(), "# interrupted")

	var manifest artifact.Manifest
	data, err := os.ReadFile(filepath.Join(onlyRun(t, results), "manifest.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &manifest))
	require.Len(t, manifest.Rows, 1)
	require.Len(t, manifest.Rows[0].Endpoints, 2, "engine and cache server")
	for name, endpoint := range manifest.Rows[0].Endpoints {
		address, err := url.Parse(endpoint.URL)
		require.NoError(t, err)
		_, err = net.DialTimeout("tcp", address.Host, time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED, name)
	}
}

func onlyRun(t *testing.T, results string) string {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join(results, "run_*"))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	return matches[0]
}
