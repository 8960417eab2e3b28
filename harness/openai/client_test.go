package openai

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

func newServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	client := New(cfg)
	t.Cleanup(client.Close)
	return client
}

// writeEvent writes one event and sends it off.
func writeEvent(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", data)
	w.(http.Flusher).Flush()
}

// Events of a short answer.
const (
	someToken  = `{"choices":[{"index":0,"text":" w9","finish_reason":null,"token_ids":[9]}]}`
	lastToken  = `{"choices":[{"index":0,"text":" w10","finish_reason":"length","token_ids":[10]}]}`
	shortUsage = `{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`
)

func shortAnswer(w http.ResponseWriter) {
	for _, data := range []string{someToken, lastToken, shortUsage, "[DONE]"} {
		writeEvent(w, data)
	}
}

func shortRequest(id string) row.Request {
	return row.Request{ID: id, Prompt: []int32{8, 9}, MaxTokens: 2, IgnoreEOS: true}
}

func TestDoSendsWhatWasAsked(t *testing.T) {
	var body map[string]any
	var header http.Header
	var path string
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		path, header = r.URL.RequestURI(), r.Header
		_ = json.NewDecoder(r.Body).Decode(&body) // a wrong body shows below
		shortAnswer(w)
	})
	full := row.Request{
		ID: "r-7", Prompt: []int32{8, 4095}, MaxTokens: 2, IgnoreEOS: true,
		Temperature: 0.5, Seed: 1<<63 | 42, Logprobs: 2, CacheSalt: "salt",
	}
	for _, base := range []string{server.URL, server.URL + "/", server.URL + "/v1", server.URL + "/v1/"} {
		body = nil
		client := newClient(t, Config{BaseURL: base, Model: "tiny", APIKey: "sk-1", Header: http.Header{"x-extra": {"yes"}, "authorization": {"other"}}})
		got := client.Do(t.Context(), full)
		require.Equal(t, row.OK, got.Status, got.Err)
		require.Equal(t, "r-7", got.ID)
		require.Equal(t, "/v1/completions", path)
		require.Equal(t, map[string]any{
			"model": "tiny", "prompt": []any{8.0, 4095.0}, "max_tokens": 2.0, "temperature": 0.5, "seed": 42.0,
			"stream": true, "stream_options": map[string]any{"include_usage": true}, "return_token_ids": true,
			"ignore_eos": true, "logprobs": 2.0, "cache_salt": "salt",
		}, body)
		require.Equal(t, "r-7", header.Get("X-Request-Id"))
		require.Equal(t, []string{"Bearer sk-1"}, header.Values("Authorization"))
		require.Equal(t, "yes", header.Get("X-Extra"))
		require.Empty(t, header.Get("Accept-Encoding"), "an answer must not be compressed")
	}
	body = nil
	client := newClient(t, Config{BaseURL: server.URL, Model: "tiny"})
	client.Do(t.Context(), row.Request{Prompt: []int32{8, 9}, MaxTokens: 1})
	require.Equal(t, 0.0, body["temperature"], "left out, the server would choose")
	for _, key := range []string{"logprobs", "cache_salt", "ignore_eos"} {
		require.NotContains(t, body, key)
	}
	require.NotContains(t, header, "X-Request-Id")
}

func TestChatSendsWhatWasAsked(t *testing.T) {
	var body map[string]any
	var path string
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		_ = json.NewDecoder(r.Body).Decode(&body)
		shortAnswer(w)
	})
	client := newClient(t, Config{BaseURL: server.URL, Model: "tiny"})
	got := client.Chat(t.Context(), ChatRequest{Messages: []Message{{"user", "hi"}}, MaxTokens: 2, Seed: 3, Logprobs: 4})
	require.Equal(t, row.OK, got.Status, got.Err)
	require.Equal(t, "/v1/chat/completions", path)
	require.Equal(t, map[string]any{
		"model": "tiny", "messages": []any{map[string]any{"role": "user", "content": "hi"}}, "max_completion_tokens": 2.0,
		"temperature": 0.0, "seed": 3.0, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"return_token_ids": true, "logprobs": true, "top_logprobs": 4.0,
	}, body)
}

// One connection for each worker, however many requests it sends. The first
// answers wait until all workers have asked, because net/http may dial once
// more than needed while connections come and go at the start.
func TestConnectionsAreReused(t *testing.T) {
	const workers, each = 4, 10
	var opened atomic.Int32
	var first sync.WaitGroup
	first.Add(workers)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Request-Id") == "0" {
			first.Done()
			first.Wait()
		}
		shortAnswer(w)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := newClient(t, Config{BaseURL: server.URL, Concurrency: workers})
	var connected [workers]row.Timeline
	for i := range each {
		var group sync.WaitGroup
		for worker := range workers {
			group.Go(func() { connected[worker] = client.Do(t.Context(), shortRequest(strconv.Itoa(i))) })
		}
		group.Wait()
		for _, got := range connected {
			require.Equal(t, row.OK, got.Status, got.Err)
			_, known := ConnectTime(got)
			require.True(t, known)
		}
	}
	require.Equal(t, int32(workers), opened.Load())
}

// An answer that is not 200 leaves the connection usable too.
func TestConnectionSurvivesErrors(t *testing.T) {
	var addresses []string
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		addresses = append(addresses, r.RemoteAddr)
		http.Error(w, strings.Repeat("long ", 40_000), http.StatusServiceUnavailable)
	})
	client := newClient(t, Config{BaseURL: server.URL, Concurrency: 1})
	for range 3 {
		got := client.Do(t.Context(), shortRequest("r"))
		require.Equal(t, row.HTTPError, got.Status)
		require.Less(t, len(got.Err), 2*maxMessage)
	}
	require.Len(t, addresses, 3)
	require.Len(t, slices.Compact(addresses), 1)
}

// A server that keeps the body open after [DONE] has answered all the same.
func TestDoneEndsTheAnswer(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		shortAnswer(w)
		<-r.Context().Done()
	})
	client := newClient(t, Config{BaseURL: server.URL})
	got := client.Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.OK, got.Status, got.Err)
	require.NotContains(t, got.Warnings, row.MissingDone)
	require.False(t, got.End.Before(got.LastToken))
}
