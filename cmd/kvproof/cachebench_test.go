package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// tinyCache is the shape and prompt of upstream's smallest example.
var tinyCache = []string{"--mode", "cpu", "--kvcache-shape-spec", "(2,64,4,1,8):float16:2", "--num-tokens", "7", "--start", "11", "--end", "21"}

// cacheServer serves the miniature cache server, and returns the flags that
// name it.
func cacheServer(t *testing.T, faults ...lmcache.Fault) (*lmcache.Server, []string) {
	t.Helper()
	s, err := lmcache.Start(t.Context(), lmcache.Config{
		Chunk: 4, HTTPAddr: "127.0.0.1:0", TransferWorkers: 4, Workers: 4, L1Bytes: 16 << 20, Faults: faults,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s, append([]string{"cachebench", "--rpc-url", s.Endpoint(), "--url", s.URL()}, tinyCache...)
}

// With the original's arguments it prints the original's lines and summary.
func TestCacheBench(t *testing.T) {
	for _, transfer := range []string{"engine_driven", "lmcache_driven", "auto"} {
		t.Run(transfer, func(t *testing.T) {
			_, args := cacheServer(t)
			var out, errs bytes.Buffer
			code := run(t.Context(), append(args, "--transfer-mode", transfer, "--interval", "0", "--clients", "2"), &out, &errs)
			require.Equal(t, exitOK, code, errs.String())
			require.Empty(t, errs.String())
			for _, part := range []string{
				"Connecting to LMCache MP Server at tcp://", "Server chunk_size = 4\n", "Resolved KV shape spec: (2,64,4,1,8):float16:2\n",
				"Each request: 8 tokens (2 full chunks)\n", "[seq 11/cold] LOOKUP: 0/2 chunks hit", "[seq 20/warm] LOOKUP: 2/2 chunks hit",
				"[seq 15] CHECKSUM MATCH OK", "Server Bench Result", "Total requests:                                               10\n", "Done.\n",
			} {
				require.Contains(t, out.String(), part)
			}
		})
	}
}

func TestCacheBenchWritesJSON(t *testing.T) {
	_, args := cacheServer(t)
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := run(t.Context(), append(args, "--format", "json", "-q", "--output", filepath.Join(dir, "o.json"), "--samples", filepath.Join(dir, "s.jsonl")), &out, &errs)
	require.Equal(t, exitOK, code, errs.String())
	var document map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &document), "stdout is one document")
	file, err := os.ReadFile(filepath.Join(dir, "o.json"))
	require.NoError(t, err)
	require.JSONEq(t, out.String(), string(file))
	samples, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
	require.NoError(t, err)
	require.Equal(t, 10*5, strings.Count(string(samples), "\n"), "five timed operations a request")
}

// A byte that is wrong is exit code 1, and there are no latencies.
func TestCacheBenchMismatch(t *testing.T) {
	_, args := cacheServer(t, lmcache.CorruptByte)
	var out, errs bytes.Buffer
	require.Equal(t, exitFailed, run(t.Context(), args, &out, &errs))
	require.Contains(t, out.String(), "kv-differs")
	require.Contains(t, out.String(), "Valid:                                                     false")
	require.NotContains(t, out.String(), "Warm Retrieve")
	require.Contains(t, errs.String(), "the run is not valid")
}

// A server that is not there, or goes, is an error that says so.
func TestCacheBenchWithoutServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	var out, errs bytes.Buffer
	args := append([]string{"cachebench", "--rpc-url", "tcp://" + listener.Addr().String()}, tinyCache...)
	require.Equal(t, exitFailed, run(t.Context(), args, &out, &errs))
	require.Contains(t, errs.String(), "connecting to the cache server")

	_, args = cacheServer(t, lmcache.Die)
	out.Reset()
	require.Equal(t, exitFailed, run(t.Context(), args, &out, &errs))
	require.Contains(t, out.String(), "server-died")
	require.Contains(t, out.String(), "restart the server before it is used again")
}

func TestCacheBenchRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--rpc-url", "grpc://h:1", "--end", "1"}, "--rpc-url=grpc://h:1"},
		{[]string{"--rpc-url", "nowhere", "--end", "1"}, "want tcp://host:port"},
		{[]string{"--transfer-mode", "data", "--end", "1"}, "--transfer-mode=data: there are auto"},
		{[]string{"--mode", "tpu", "--end", "1"}, "--mode=tpu"},
		{[]string{"--format", "xml", "--end", "1"}, "--format=xml"},
		{[]string{"--op", "read", "--end", "1"}, "--op=read"},
		{[]string{"--kvcache-shape-spec", "(2,8)", "--end", "1"}, "--kvcache-shape-spec"},
		{[]string{"--block-size", "32", "--end", "1"}, "--block-size=32: the KV shape"},
		{[]string{"--use-mla", "--end", "1"}, "two planes"},
		{[]string{"--num-tokens", "-1", "--end", "1"}, "--num-tokens=-1"},
		{[]string{"--server-version", "0.3.1", "--end", "1"}, "--server-version=0.3.1"},
		{[]string{"--start", "5", "--end", "5"}, "no sequence in between"},
		{nil, "say how long to run"},
		{[]string{"--end", "3", "--forever"}, "say how long to run"},
		{[]string{"--clients", "0", "--end", "3"}, "--clients=0"},
		{[]string{"x"}, `argument "x"`},
		{[]string{"--nope"}, "-nope; the flags are"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"cachebench"}, c.args...), &out, &errs), c.args)
		require.Contains(t, errs.String(), c.want)
		require.Empty(t, out.String())
	}
}

// Ctrl-C ends with 130, with everything unregistered and nothing left behind.
func TestCacheBenchInterrupt(t *testing.T) {
	s, args := cacheServer(t)
	args = append(args[:len(args)-2], "--forever", "--transfer-mode", "lmcache_driven") // in place of --end 21
	cmd := exec.CommandContext(t.Context(), build(t), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out := &matchCounter{until: 20, then: func() { _ = cmd.Process.Signal(syscall.SIGINT) }}
	cmd.Stdout = out
	err := cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitInterrupted, exit.ExitCode(), errs.String())
	require.Contains(t, out.text.String(), "Stopping...\n")
	require.Contains(t, out.text.String(), "Warm Retrieve", "what was measured is kept")
	left, err := shm.List()
	require.NoError(t, err)
	for _, name := range left {
		require.False(t, strings.HasPrefix(name, fmt.Sprintf("/%s%d_", shm.Prefix, cmd.Process.Pid)), "%s is left behind", name)
	}
	_, status := get(t, s.URL()+"/status")
	require.Contains(t, status, `"cache_context_meta":{}`, "nobody is registered")
}

// A matchCounter calls then when that many requests have matched.
type matchCounter struct {
	text  strings.Builder
	until int
	then  func()
}

func (m *matchCounter) Write(b []byte) (int, error) {
	before := strings.Count(m.text.String(), "MATCH OK")
	m.text.Write(b)
	if after := strings.Count(m.text.String(), "MATCH OK"); before < m.until && after >= m.until {
		m.then()
	}
	return len(b), nil
}
