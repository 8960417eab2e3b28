//go:build lmcache

package lmcache

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests of this file run LMCache's own bench client, which
// scripts/lmcache.sh installs, against the server here.

var mustNotSkip = flag.Bool("require", os.Getenv("KVPROOF_REQUIRE") != "", "fail where a test would skip because LMCache is not installed")

// benchTimeout is how long a run of the client may take; it needs ten seconds
// on an idle machine, most of them for imports.
const benchTimeout = 5 * time.Minute

// installed returns the command of a release, or skips.
func installed(t *testing.T, command, version string) string {
	t.Helper()
	cache := os.Getenv("KVPROOF_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = filepath.Join(user, "kvproof")
	}
	path := filepath.Join(cache, "lmcache", "bin", command)
	if _, err := os.Stat(path); err != nil {
		why := fmt.Sprintf("LMCache %s is not installed (%v): LMCACHE_VERSION=%s scripts/lmcache.sh installs it.", version, err, version)
		if *mustNotSkip {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return path
}

const plain = "(2,64,4,2,8):float16:3"

// Upstream's clients of three dialects pass against the server of theirs, in
// both transfers: nothing is found cold, all of it warm, every checksum agrees.
func TestUpstreamsBenchPasses(t *testing.T) {
	for _, client := range []struct {
		version, command string
		modes            [2]string // lmcache_driven and engine_driven, in its words
		shapes           []string
	}{
		{"0.5.6", "lmcache", [2]string{LMCacheDriven, EngineDriven}, []string{plain, "(1,64,4,2,8):bfloat16:3"}},
		{"0.5.5", "lmcache-0.5.5", [2]string{LMCacheDriven, EngineDriven}, []string{plain}},
		{"0.4.7", "lmcache-0.4.7", [2]string{"handle", "data"}, []string{plain}},
	} {
		for i, transfer := range []string{LMCacheDriven, EngineDriven} {
			for _, shape := range client.shapes {
				t.Run(fmt.Sprintf("%s/%s/%s", client.version, transfer, shape), func(t *testing.T) {
					command := installed(t, client.command, client.version)
					s := serve(t, Config{Version: client.version, Transfer: transfer, Chunk: 8})
					const requests, tokens = 6, 37 // four whole chunks and a rest
					matches, mismatches := runBench(t, command, s, "--transfer-mode", client.modes[i], "--kvcache-shape-spec", shape,
						"--num-tokens", fmt.Sprint(tokens), "--start", "1", "--end", fmt.Sprint(1+requests), "--interval", "0.1")
					require.Equal(t, requests, matches)
					require.Zero(t, mismatches)
					require.InDelta(t, requests*4*8, sum(t, s, "lmcache_mp_lookup_hit_tokens_total"), 0, "warm passes hit, cold ones miss")
					require.InDelta(t, 2*requests*4*8, sum(t, s, "lmcache_mp_lookup_requested_tokens_total"), 0)
					require.Zero(t, state(t, s).ReadLocked)
					require.Zero(t, state(t, s).WriteLocked)
				})
			}
		}
	}
}

// A damaged byte is what its checksums see.
func TestUpstreamsBenchSeesDamage(t *testing.T) {
	command := installed(t, "lmcache", "0.5.6")
	s := serve(t, Config{Chunk: 8, Faults: []Fault{CorruptByte}})
	matches, mismatches := runBench(t, command, s, "--transfer-mode", LMCacheDriven, "--kvcache-shape-spec", plain,
		"--num-tokens", "15", "--start", "1", "--end", "4", "--interval", "0.1")
	require.Zero(t, matches)
	require.Equal(t, 3, mismatches)
}

// runBench runs lmcache bench server and returns how many of its requests
// matched and how many did not. The oldest releases print no summary.
func runBench(t *testing.T, command string, s *Server, args ...string) (matches, mismatches int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), benchTimeout)
	defer cancel()
	args = append([]string{"bench", "server", "--rpc-url", s.Endpoint(), "--url", s.URL(), "--mode", "cpu"}, args...)
	bench := exec.CommandContext(ctx, command, args...)
	bench.Env = append(os.Environ(), "LMCACHE_TRACK_USAGE=false", "DO_NOT_TRACK=1", "LMCACHE_DISABLE_BANNER=1")
	out, err := bench.CombinedOutput()
	t.Logf("%s\nserver:\n%s", out, s.config.Log)
	require.NoError(t, err)
	return strings.Count(string(out), "CHECKSUM MATCH OK"), strings.Count(string(out), "CHECKSUM MISMATCH!")
}
