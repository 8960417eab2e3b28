package engine

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Eight requests at once give what they give one by one, and all accounts hold.
func TestConcurrentRequests(t *testing.T) {
	bodies := func(i int) object { return ask(prompt(uint64(i/2), 40+i/2*17)) } // pairs share a prompt
	want := make([]result, 16)
	for i := range want {
		want[i] = complete(t, newEngine(t, nil), bodies(i))
	}
	for name, change := range map[string]func(*Config){
		"no cache":  nil,
		"own cache": caching,
		"both":      func(c *Config) { c.PrefixCaching, c.Store = true, newMemStore(32, 16) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(c *Config) {
				c.MaxSeqs = 8
				if change != nil {
					change(c)
				}
			})
			var waits []func() *httptest.ResponseRecorder
			for i := range want {
				waits = append(waits, begin(t, e, bodies(i)))
			}
			var got []result
			for i, wait := range waits {
				got = append(got, answerOf(t, wait()))
				requireSame(t, want[i], got[i])
			}
			checkIdentities(t, e, got...)
		})
	}
}

// No more than MaxSeqs run, the others wait and start in order of arrival.
func TestFirstComeFirstServed(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.MaxSeqs, c.Store = 2, g })
	var waits []func() *httptest.ResponseRecorder
	for i := range 6 {
		waits = append(waits, begin(t, e, ask(prompt(uint64(i), 20+i))))
		accepted(t, e, i+1)
	}
	require.Equal(t, load{running: 2, waiting: 4, kvUsage: e.load().kvUsage}, e.load())
	require.InDelta(t, 2, series(t, e, "vllm:num_requests_running"), 0)
	require.InDelta(t, 4, series(t, e, "vllm:num_requests_waiting"), 0)
	require.InDelta(t, 4, series(t, e, "vllm:num_requests_waiting_by_reason", "reason", "capacity"), 0)

	for done := range 4 {
		var next *sequence
		e.mu.Lock()
		next = e.waiting[0]
		e.mu.Unlock()
		require.Len(t, next.prompt, 22+done, "the oldest is the next")
		g.open <- struct{}{}
		eventually(t, func() bool { return e.load().waiting == 3-done }, "a place is taken again")
		require.Equal(t, 2, e.load().running)
	}
	close(g.open)
	for _, wait := range waits {
		answerOf(t, wait())
	}
}

// A request that does not fit the pool yet waits, and those behind it wait too.
func TestAdmissionNeedsBlocks(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.Store, c.NumBlocks, c.MaxSeqs = g, 64, 8 }) // the context: 1024 tokens
	var waits []func() *httptest.ResponseRecorder
	for i, c := range []struct{ prompt, output int }{
		{500, 13}, // 512 tokens: 32 blocks
		{497, 33}, // 529 tokens: 34 blocks
		{10, 2},   // 1 block, but it came last
	} {
		waits = append(waits, begin(t, e, ask(prompt(uint64(i), c.prompt)).with(object{"max_tokens": c.output})))
		accepted(t, e, i+1)
	}
	require.Equal(t, load{running: 1, waiting: 2, kvUsage: 0.5}, e.load())
	g.open <- struct{}{}
	eventually(t, func() bool { return e.load().running == 2 }, "both fit once the first has ended")
	require.InDelta(t, 35.0/64, e.load().kvUsage, 0)
	close(g.open)
	for _, wait := range waits {
		answerOf(t, wait())
	}
	require.Equal(t, load{}, e.load())
}

// Free cached blocks are evicted, least recently used first; output stays right.
func TestEviction(t *testing.T) {
	e := newEngine(t, func(c *Config) { c.PrefixCaching, c.NumBlocks = true, 64 })
	ids := func(i int) []int32 { return prompt(uint64(i), 160) } // 10 blocks and one for the output
	var cold []result
	for i := range 6 {
		cold = append(cold, complete(t, e, ask(ids(i))))
	}
	require.Equal(t, 144, complete(t, e, ask(ids(0))).cached, "all six fit")
	complete(t, e, ask(prompt(99, 300)))
	require.Equal(t, 144, complete(t, e, ask(ids(0))).cached, "used last before the large one")
	require.Equal(t, 144, complete(t, e, ask(ids(5))).cached)
	lost := complete(t, e, ask(ids(1)))
	require.Less(t, lost.cached, 144, "the least recently used made room")
	requireSame(t, cold[1], lost)
	require.Equal(t, load{}, e.load())
}

// A client that goes away while its prompt is computed frees its blocks.
// Counted are its queries, and nothing else: as observed.
func TestDisconnectDuringPrefill(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.Store, c.MaxSeqs = g, 1 })
	url := serve(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	open(ctx, t, url, ask(prompt(1, 100)))
	require.Equal(t, 1, e.load().running)
	other, cancelOther := context.WithCancel(t.Context())
	open(other, t, url, ask(prompt(2, 200)))
	require.Equal(t, 1, e.load().waiting)
	cancelOther()
	eventually(t, func() bool { return e.load().waiting == 0 }, "one that waits leaves the queue")
	cancel()
	eventually(t, func() bool { return e.load() == load{} }, "one that runs frees its place and its blocks")

	require.InDelta(t, 100, series(t, e, "vllm:prefix_cache_queries_total"), 0)
	require.InDelta(t, 0, series(t, e, "vllm:prompt_tokens_total"), 0)
	require.InDelta(t, 0, series(t, e, "vllm:request_success_total"), 0)
	close(g.open)
	complete(t, e, ask(prompt(3, 20)))
}

// A client that goes away in mid-stream: its tokens count, its request does
// not, not even as an abort: as observed.
func TestDisconnectDuringDecode(t *testing.T) {
	store, goOn := pausing()
	e := newEngine(t, func(c *Config) { c.Store = store })
	url := serve(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := open(ctx, t, url, ask(prompt(1, 100)).with(object{"max_tokens": 900}))
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "token_ids")
	cancel()
	eventually(t, func() bool { return cancelled(e) }, "the server notices")
	goOn()
	eventually(t, func() bool { return e.load() == load{} }, "place and blocks are free")
	require.InDelta(t, 1, series(t, e, "vllm:generation_tokens_total"), 0, "it stopped after the first token")
	require.InDelta(t, 100, series(t, e, "vllm:prompt_tokens_total"), 0)
	require.InDelta(t, 0, series(t, e, "vllm:request_success_total"), 0)
	require.InDelta(t, 0, series(t, e, "vllm:e2e_request_latency_seconds"), 0)
	require.Positive(t, series(t, e, "vllm:time_to_first_token_seconds"))
}

// A reset empties the cache when the engine is at rest, says false under
// HTTP 200 while a request runs, and leaves the store alone unless told.
func TestReset(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.PrefixCaching, c.Store = true, store })
	ids := prompt(1, 50)
	complete(t, e, ask(ids))
	reset := func(query string) string {
		w := do(t, e, http.MethodPost, "/reset_prefix_cache"+query, "")
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	hits := func() float64 { return series(t, e, "vllm:prefix_cache_hits_total") }

	require.Equal(t, `{"success":true}`, reset(""))
	require.Zero(t, store.resets)
	require.Equal(t, 48, complete(t, e, ask(ids)).cached, "the store is a tier of its own")
	require.Zero(t, hits(), "and the own cache was empty")

	require.Equal(t, `{"success":true}`, reset("?reset_external=true"))
	require.Equal(t, 1, store.resets)
	require.Zero(t, complete(t, e, ask(ids)).cached)
	require.Equal(t, http.StatusBadRequest, do(t, e, http.MethodPost, "/reset_prefix_cache?reset_running_requests=true", "").Code)
	require.Equal(t, http.StatusBadRequest, do(t, e, http.MethodPost, "/reset_prefix_cache?reset_external=perhaps", "").Code)
}

func TestResetWhileRunning(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.PrefixCaching, c.Store = true, g })
	wait := begin(t, e, ask(prompt(1, 50)))
	accepted(t, e, 1)
	w := do(t, e, http.MethodPost, "/reset_prefix_cache?reset_external=true", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, `{"success":false}`, w.Body.String())
	require.Zero(t, g.resets)
	close(g.open)
	answerOf(t, wait())
	require.Equal(t, `{"success":true}`, do(t, e, http.MethodPost, "/reset_prefix_cache?reset_external=true", "").Body.String())
}

// A reset right after an answer finds the engine at rest, every time.
func TestResetRightAfterAnAnswer(t *testing.T) {
	e := newEngine(t, caching)
	url := serve(t, e)
	for i := range 50 {
		resp := open(t.Context(), t, url, ask(prompt(uint64(i), 20)).with(object{"max_tokens": 2}))
		for lines := bufio.NewScanner(resp.Body); lines.Scan() && !strings.Contains(lines.Text(), `"finish_reason":"length"`); {
		}
		require.Equal(t, `{"success":true}`, do(t, e, http.MethodPost, "/reset_prefix_cache", "").Body.String())
	}
}

// Other weights answer otherwise, and what the old ones computed is gone, unless
// the caller takes that on himself.
func TestUpdateWeights(t *testing.T) {
	store := newMemStore(16, 16)
	e := newEngine(t, func(c *Config) { c.PrefixCaching, c.Store = true, store })
	ids := prompt(1, 50)
	old := complete(t, e, ask(ids))
	update := func(query string, code int) string {
		w := do(t, e, http.MethodPost, "/update_weights"+query, "")
		require.Equal(t, code, w.Code)
		return w.Body.String()
	}
	require.Equal(t, `{"success":true}`, update("", http.StatusOK))
	fresh := complete(t, e, ask(ids))
	require.Zero(t, fresh.cached)
	require.NotEqual(t, old.tokens, fresh.tokens)
	require.Equal(t, 1, store.resets)

	require.Equal(t, `{"success":true}`, update("?reset_cache=false", http.StatusOK))
	require.Equal(t, 48, complete(t, e, ask(ids)).cached, "the store knows nothing of weights")
	update("?reset_cache=perhaps", http.StatusBadRequest)
}
