package engine

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shutdown lets accepted requests end, those that wait too, and takes no more.
func TestShutdownDrains(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.MaxSeqs, c.Store = 1, g })
	first, second := begin(t, e, ask(prompt(0, 30))), begin(t, e, ask(prompt(1, 30)))
	accepted(t, e, 2)
	down := make(chan error)
	go func() { down <- e.Shutdown(t.Context()) }()
	eventually(t, func() bool { return e.healthy() != nil }, "no new work")
	require.Equal(t, http.StatusServiceUnavailable, post(t, e, "/v1/completions", ask(prompt(9, 5))).Code)
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v before the requests ended", err)
	default:
	}
	close(g.open)
	require.Len(t, answerOf(t, first()).tokens, 8)
	require.Len(t, answerOf(t, second()).tokens, 8)
	require.NoError(t, <-down)
	require.NoError(t, e.Shutdown(t.Context()), "again")
}

// When its context ends, Shutdown cancels what runs and what waits.
func TestShutdownGivesUp(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.MaxSeqs, c.Store = 1, g })
	first, second := begin(t, e, ask(prompt(0, 30))), begin(t, e, ask(prompt(1, 30)))
	accepted(t, e, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.Shutdown(ctx), context.Canceled)
	for _, wait := range []func() *httptest.ResponseRecorder{first, second} {
		require.Contains(t, events(t, wait().Body)[0], "shutting down")
	}
	require.Equal(t, load{}, e.load())
}

// Death looks as captured: an error event and [DONE] under HTTP 200 for
// streams, HTTP 500 for others, /health 503.
func TestDeath(t *testing.T) {
	g := newGate()
	e := newEngine(t, func(c *Config) { c.MaxSeqs, c.Store = 1, g })
	require.Equal(t, http.StatusOK, do(t, e, http.MethodGet, "/health", "").Code)
	runs, waits := begin(t, e, ask(prompt(0, 30))), begin(t, e, ask(prompt(1, 30)))
	whole := begin(t, e, ask(prompt(5, 30)).with(object{"stream": false, "stream_options": nil}))
	accepted(t, e, 3)
	e.Die("planted")
	for _, wait := range []func() *httptest.ResponseRecorder{runs, waits} {
		w := wait()
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, string(testdata(t, "engine-death-stream.sse")), w.Body.String())
	}
	w := whole()
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "EngineCore encountered an issue.")

	require.Equal(t, http.StatusServiceUnavailable, do(t, e, http.MethodGet, "/health", "").Code)
	require.Equal(t, http.StatusInternalServerError, post(t, e, "/v1/completions", ask(prompt(9, 5))).Code)
	require.Equal(t, load{}, e.load())
	require.NoError(t, e.Shutdown(t.Context()))
}

// Death in mid-stream comes after the tokens that were there.
func TestDeathInMidStream(t *testing.T) {
	store, goOn := pausing()
	e := newEngine(t, func(c *Config) { c.Store = store })
	resp := open(t.Context(), t, serve(t, e), ask(prompt(1, 30)))
	body := bufio.NewReader(resp.Body)
	first, err := body.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, first, "token_ids")
	e.Die("planted")
	goOn()
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "\n"+string(testdata(t, "engine-death-stream.sse")), string(rest))
}
