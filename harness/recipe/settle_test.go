package recipe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// services are an idle engine and a cache server whose status is scripted.
func services(t *testing.T, status func(poll int) (code int, body string)) (*row.Server, *atomic.Int64) {
	t.Helper()
	polls := new(atomic.Int64)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
	}))
	t.Cleanup(engine.Close)
	cache := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code, body := status(int(polls.Add(1)))
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(cache.Close)
	lmcache, err := recipe.On("lmcache", recipe.Endpoints{Engine: engine.URL, Backend: cache.URL, Model: "tiny", Context: 1024, Vocab: 1024})
	require.NoError(t, err)
	server, err := lmcache.Start(t.Context(), row.Env{BlockSize: 16, Concurrency: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
	return server, polls
}

const (
	quiet = `{"storage_manager":{"store_controller":{"pending_keys_count":0},"prefetch_controller":{}}}`
	busy  = `{"storage_manager":{"store_controller":{"pending_keys_count":2},"prefetch_controller":{}}}`
)

// A store is settled once it has looked quiet three times in a row.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name  string
		body  func(poll int) string
		polls int64
	}{
		{"quiet from the start", func(int) string { return quiet }, 3},
		{"busy at first", func(poll int) string {
			if poll <= 12 {
				return busy
			}
			return quiet
		}, 15},
		{"busy again in between", func(poll int) string {
			if poll == 3 {
				return busy
			}
			return quiet
		}, 6},
		{"loading", func(poll int) string {
			if poll == 1 {
				return `{"storage_manager":{"store_controller":{},"prefetch_controller":{"load_phase_count":1}}}`
			}
			return quiet
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, polls := services(t, func(poll int) (int, string) { return 200, c.body(poll) })
			require.NoError(t, server.Cache.Settle(t.Context()))
			require.Equal(t, c.polls, polls.Load())
		})
	}
}

// What does not answer as expected is not quiet.
func TestSettleFails(t *testing.T) {
	for _, c := range []struct {
		name string
		code int
		body string
		want string
	}{
		{"unreachable", 503, quiet, "503 Service Unavailable"},
		{"something else", 200, `{}`, "has no storage_manager"},
		{"no JSON", 200, "fine", "reading the cache server's status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, _ := services(t, func(int) (int, string) { return c.code, c.body })
			require.ErrorContains(t, server.Cache.Settle(t.Context()), c.want)
		})
	}
	t.Run("never quiet", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		server, _ := services(t, func(poll int) (int, string) {
			if poll == 3 {
				cancel()
			}
			return 200, busy
		})
		require.ErrorIs(t, server.Cache.Settle(ctx), context.Canceled)
	})
}
