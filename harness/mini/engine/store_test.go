package engine

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A store is believed: what it says it has is what usage reports, and damaged
// KV becomes damaged output.
func TestStoreIsBelieved(t *testing.T) {
	ids := prompt(11, 69)
	for _, c := range []struct {
		name   string
		found  func(int) int
		cached int
		same   bool
	}{
		{"the truth", func(n int) int { return n }, 64, true},
		{"one token less", func(n int) int { return n - 1 }, 63, true},
		{"one token more", func(n int) int { return n + 1 }, 65, false},
		{"more than the prompt", func(int) int { return 1000 }, 68, false},
		{"less than nothing", func(int) int { return -5 }, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newMemStore(16, 16)
			e := newEngine(t, func(cfg *Config) { cfg.Store = store })
			cold := complete(t, e, ask(ids))
			store.lookup = func(_ context.Context, n int) (int, error) { return c.found(n), nil }
			warm := complete(t, e, ask(ids))
			require.Equal(t, c.cached, warm.cached)
			require.InDelta(t, c.cached, series(t, e, "vllm:external_prefix_cache_hits_total"), 0)
			if c.same {
				requireSame(t, cold, warm)
			} else {
				require.NotEqual(t, *cold.logprobs[0], *warm.logprobs[0], "KV that is not there shows in the output")
			}
		})
	}
}

func TestDamagedKVShows(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.Store = store })
	ids := prompt(12, 69)
	cold := complete(t, e, ask(ids))
	store.loaded = func(dst [][]float32) error {
		for i := range dst[0] {
			dst[0][i], dst[1][i] = dst[1][i], dst[0][i]
		}
		return nil
	}
	warm := complete(t, e, ask(ids))
	require.Equal(t, 64, warm.cached)
	require.NotEqual(t, *cold.logprobs[0], *warm.logprobs[0])
}

// A load that fails fails the request as kv_load_failure_policy "fail" does:
// an error event under HTTP 200, or HTTP 500. The engine lives on.
func TestLoadErrorFailsTheRequest(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.Store = store })
	ids := prompt(13, 69)
	cold := complete(t, e, ask(ids))
	store.loaded = func([][]float32) error { return errors.New("disk on fire") }

	w := post(t, e, "/v1/completions", ask(ids))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, []string{
		`{"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}`, "[DONE]",
	}, events(t, w.Body))
	w = post(t, e, "/v1/completions", ask(ids).with(object{"stream": false, "stream_options": nil}))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), `"type":"InternalServerError"`)
	require.NotContains(t, w.Body.String(), "disk on fire")
	require.InDelta(t, 2, series(t, e, "vllm:request_success_total", "finished_reason", "error"), 0)

	store.loaded = nil
	requireSame(t, cold, complete(t, e, ask(ids)))
	require.Zero(t, e.load().running)
}

// A store that cannot be asked is a miss, as observed when LMCache is gone.
func TestLookupErrorIsAMiss(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.Store = store })
	ids := prompt(14, 69)
	cold := complete(t, e, ask(ids))
	store.lookup = func(context.Context, int) (int, error) { return 64, errors.New("connection refused") }
	again := complete(t, e, ask(ids))
	require.Zero(t, again.cached)
	requireSame(t, cold, again)
}

// The prompt is with the store before the answer ends, and is not sent there
// again when all of it came from there.
func TestStoreComesBeforeTheEnd(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.Store = store })
	one := ask(prompt(15, 69)).with(object{"max_tokens": 1})
	complete(t, e, one)
	require.Len(t, store.chunks, 4)
	require.Equal(t, 1, store.stored)
	complete(t, e, one)
	require.Equal(t, 1, store.stored)
}
