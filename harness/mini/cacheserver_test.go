package mini_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/connector"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// cacheServer is a cache server that is not the stack's.
func cacheServer(t *testing.T, c lmcache.Config) *lmcache.Server {
	t.Helper()
	c.HTTPAddr = "127.0.0.1:0"
	s, err := lmcache.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

// The engine works with a cache server of any release, in both transfers, by
// LMCache's law; its chunk is the server's.
func TestAnotherCacheServer(t *testing.T) {
	for _, version := range []string{"0.5.6", "0.5.5", "0.4.7"} {
		for _, transfer := range []string{connector.EngineDriven, connector.LMCacheDriven} {
			t.Run(version+"/"+transfer, func(t *testing.T) {
				server := cacheServer(t, lmcache.Config{Version: version, Chunk: 32, L1Bytes: 1 << 22})
				c := mini.Config{Row: mini.LMCache, BlockSize: 16, LMCacheAddr: server.Endpoint(), LMCacheHTTP: server.URL() + "/", LMCacheTransfer: transfer}
				s := start(t, c)
				require.Equal(t, server.URL(), s.StoreURL())
				require.Nil(t, s.CacheServer())
				p := prompt(1, 3*32+5)
				cold := complete(t, s, p)
				settle(t, s)
				warm := complete(t, s, p)
				require.Zero(t, cold.cached())
				require.Equal(t, 3*32, warm.cached())
				require.Equal(t, cold.Choices, warm.Choices)

				// Another engine finds what this one has stored, unless its
				// weights are others.
				require.Equal(t, 3*32, complete(t, start(t, c), p).cached())
				other := model.Nano()
				other.Seed++
				c.Model = other
				require.Zero(t, complete(t, startModel(t, c), p).cached())

				code, _ := post(t, s.EngineURL()+"/reset_prefix_cache?reset_external=true")
				require.Equal(t, http.StatusOK, code)
				require.Zero(t, complete(t, s, p).cached())
			})
		}
	}
}

// startModel starts a stack with the model of its config.
func startModel(t *testing.T, c mini.Config) *mini.Stack {
	t.Helper()
	s, err := mini.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

func TestAnotherCacheServerIsRefused(t *testing.T) {
	server := cacheServer(t, lmcache.Config{Chunk: 24, L1Bytes: 1 << 20})
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`"0.3.1"`)) }))
	defer old.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, test := range []struct {
		name   string
		config mini.Config
		want   string
	}{
		{"one address of two", mini.Config{Row: mini.LMCache, LMCacheAddr: "tcp://x:1"}, "both are needed"},
		{"another row", mini.Config{Row: mini.Baseline, LMCacheAddr: "tcp://x:1", LMCacheHTTP: "http://x:2"}, "only row lmcache has one"},
		{"unsafe", mini.Config{Row: mini.LMCache, Unsafe: true, LMCacheAddr: "tcp://x:1", LMCacheHTTP: "http://x:2"}, "cannot be damaged from here"},
		{"its chunk does not fit", mini.Config{Row: mini.LMCache, BlockSize: 16, LMCacheAddr: server.Endpoint(), LMCacheHTTP: server.URL()}, "chunk of 24 tokens is no multiple of the engine's block of 16"},
		{"unknown release", mini.Config{Row: mini.LMCache, LMCacheAddr: server.Endpoint(), LMCacheHTTP: old.URL}, `LMCache version "0.3.1" is not known`},
		{"no HTTP", mini.Config{Row: mini.LMCache, LMCacheAddr: server.Endpoint(), LMCacheHTTP: gone.URL}, "asking the cache server for its version"},
		{"no release told", mini.Config{Row: mini.LMCache, LMCacheAddr: server.Endpoint(), LMCacheHTTP: server.URL() + "/nope"}, "404"},
		{"no wire", mini.Config{Row: mini.LMCache, LMCacheAddr: "tcp://" + gone.Listener.Addr().String(), LMCacheHTTP: server.URL()}, "connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Model = model.Nano()
			_, err := mini.Start(t.Context(), test.config)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// A fault of the cache server reaches the engine's output.
func TestFaultsOfTheCacheServerReachTheOutput(t *testing.T) {
	s := start(t, mini.Config{Row: mini.LMCache, BlockSize: 16})
	cold := complete(t, s, prompt(1, 53))
	settle(t, s)
	require.NoError(t, s.CacheServer().Plant(lmcache.HitWithoutData))
	warm := complete(t, s, prompt(1, 53))
	require.Equal(t, 48, warm.cached())
	require.NotEqual(t, cold.Choices[0].Logprobs, warm.Choices[0].Logprobs)
	s.CacheServer().Clear()
	require.Equal(t, cold.Choices, complete(t, s, prompt(1, 53)).Choices)
}

// A reset of the row makes it cold, files and all; the files go with the stack.
func TestResetForgetsFiles(t *testing.T) {
	dir := t.TempDir()
	s := start(t, mini.Config{Row: mini.LMCache, BlockSize: 16, L2Dir: dir})
	complete(t, s, prompt(1, 53))
	settle(t, s)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	files, err := os.ReadDir(dir + "/" + entries[0].Name())
	require.NoError(t, err)
	require.Len(t, files, 3)
	code, _ := post(t, s.EngineURL()+"/reset_prefix_cache?reset_external=true")
	require.Equal(t, http.StatusOK, code)
	files, err = os.ReadDir(dir + "/" + entries[0].Name())
	require.NoError(t, err)
	require.Empty(t, files)
	require.Zero(t, complete(t, s, prompt(1, 53)).cached())
	require.NoError(t, s.Close(t.Context()))
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
