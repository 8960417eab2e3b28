package engine

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The switches of DaseR's connector: what a request skips, the store never
// sees, and the answer is the same.
func TestSkipsOfOneRequest(t *testing.T) {
	ids := prompt(11, 69)
	for _, c := range []struct {
		name                  string
		transfer              any
		cached, looked, saved int
	}{
		{"nothing", nil, 64, 1, 0},
		{"empty", object{}, 64, 1, 0},
		{"another connector's", object{"do_remote_decode": true}, 64, 1, 0},
		{"off", object{"daser_skip_load": false, "daser_skip_save": false}, 64, 1, 0},
		{"save", object{"daser_skip_save": true}, 64, 1, 0},
		{"load", object{"daser_skip_load": true}, 0, 0, 1},
		{"both", object{"daser_skip_load": true, "daser_skip_save": true}, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newMemStore(16, 16)
			e := newEngine(t, func(cfg *Config) { cfg.Store = store })
			cold := complete(t, e, ask(ids))
			store.looked, store.stored = 0, 0
			warm := complete(t, e, ask(ids).with(object{"kv_transfer_params": c.transfer}))
			require.Equal(t, c.cached, warm.cached)
			require.Equal(t, c.looked, store.looked)
			require.Equal(t, c.saved, store.stored)
			requireSame(t, cold, warm)
			require.InDelta(t, 2*len(ids), series(t, e, "vllm:external_prefix_cache_queries_total"), 0, "what was skipped counts as asked for")
			require.InDelta(t, c.cached, series(t, e, "vllm:external_prefix_cache_hits_total"), 0)
		})
	}
	t.Run("save of a cold prompt", func(t *testing.T) {
		store := newMemStore(16, 16)
		e := newEngine(t, func(cfg *Config) { cfg.Store = store })
		complete(t, e, ask(ids).with(object{"kv_transfer_params": object{"daser_skip_save": true}}))
		require.Zero(t, store.stored)
		require.Zero(t, complete(t, e, ask(ids)).cached)
	})
}

func TestSkipsOfAWrongKind(t *testing.T) {
	e := newEngine(t, func(*Config) {})
	for _, transfer := range []any{"yes", object{"daser_skip_load": 7}} {
		w := post(t, e, "/v1/completions", ask(prompt(1, 9)).with(object{"kv_transfer_params": transfer}))
		require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
	}
}
