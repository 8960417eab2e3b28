package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A cache server alone answers a client of the wire and of its HTTP side, and
// leaves neither a port nor shared memory behind.
func TestCacheServerServesUntilASignal(t *testing.T) {
	binary := build(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			s := serveCache(t, binary, "-chunk=64", "-l1=1mib", "-release=0.5.5", "-fault=slow-reply")
			require.Equal(t, "LMCache 0.5.5, chunk 64 tokens, transfers auto", s.lines["dialect"])
			require.Equal(t, "slow-reply", s.lines["faults"])
			code, version := get(t, s.lines["http"]+"/version")
			require.Equal(t, http.StatusOK, code)
			dialect, err := wire.ForVersion(strings.Trim(strings.TrimSpace(version), `"`))
			require.NoError(t, err)

			dealer := wire.NewDealer(s.lines["wire"], dialect, limit)
			defer func() { require.NoError(t, dealer.Close()) }()
			var chunk int
			_, err = dealer.Call(t.Context(), &wire.GetChunkSize{}, &chunk)
			require.NoError(t, err)
			require.Equal(t, 64, chunk)
			var pool wire.Pool
			_, err = dealer.Call(t.Context(), &wire.RegisterEngineDriven{Context: wire.EngineContext{
				Instance: 1, Model: "m", WorldSize: 1, BlockSize: 16, Layers: 1, Hidden: 8, DType: "float32",
			}}, &pool)
			require.NoError(t, err)
			segments, err := shm.List()
			require.NoError(t, err)
			require.Contains(t, segments, "/"+pool.Name)

			require.Equal(t, exitOK, s.stop(t, signal), s.errs.String())
			requireFree(t, s.lines["http"])
			segments, err = shm.List()
			require.NoError(t, err)
			require.NotContains(t, segments, "/"+pool.Name)
		})
	}
}

func serveCache(t *testing.T, binary string, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	args = append([]string{"mini", "-cacheserver=127.0.0.1:0", "-http", "127.0.0.1:0"}, args...)
	s := &served{Cmd: exec.CommandContext(ctx, binary, args...), lines: map[string]string{}, errs: &bytes.Buffer{}}
	s.start(t)
	return s
}

func TestCacheServerRefusesFlags(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"address", []string{"-cacheserver="}, "-cacheserver and -http: each needs an address"},
		{"row", []string{"-cacheserver=127.0.0.1:0", "-row=lmcache"}, "with -cacheserver the flags are"},
		{"argument", []string{"-cacheserver=127.0.0.1:0", "x"}, `argument "x"`},
		{"release", []string{"-cacheserver=127.0.0.1:0", "-release=0.1.0"}, `LMCache version "0.1.0" is not known`},
		{"transfer", []string{"--cacheserver", "127.0.0.1:0", "-transfer=gpu"}, `transfer "gpu"`},
		{"chunk", []string{"-cacheserver=127.0.0.1:0", "-chunk=-1"}, "chunks of -1 tokens"},
		{"l1", []string{"-cacheserver=127.0.0.1:0", "-l1=x"}, "-l1=x"},
		{"l2", []string{"-cacheserver=127.0.0.1:0", "-l2=1mib"}, "without a directory"},
		{"fault", []string{"-cacheserver=127.0.0.1:0", "-fault=nope"}, `-fault=nope: fault "nope" of the cache server is not known; there are corrupt-byte`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.Equal(t, exitUsage, run(t.Context(), append([]string{"mini"}, test.args...), &out, &errs))
			require.Contains(t, errs.String(), test.want)
			require.Empty(t, out.String())
		})
	}
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"mini", "-cacheserver=x", "-help"}, &out, &errs))
	require.Contains(t, out.String(), "leaked-lock")
	require.Empty(t, errs.String())
}

func TestCacheServerAddressInUse(t *testing.T) {
	binary := build(t)
	s := serveCache(t, binary, "-l1=1mib")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"mini", "-cacheserver=" + strings.TrimPrefix(s.lines["wire"], "tcp://"), "-http=127.0.0.1:0", "-l1=1mib"}, &out, &errs)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "address already in use")
	require.Equal(t, exitOK, s.stop(t, os.Interrupt))
}
