package daser

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/fault"
)

// TestInferAnswers: the JSON of DaseR, with its own times.
func TestInferAnswers(t *testing.T) {
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, 2*size))
	ask := object{"doc_ids": []string{id}, "task": "w20 w21", "gen_params": greedy}
	status, answer := call(t, http.MethodPost, s.url+"/infer", ask)
	require.Equal(t, http.StatusOK, status, answer)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(answer), &got))
	require.ElementsMatch(t, []string{
		"text", "prompt_tokens", "completion_tokens", "latency_ms", "ttft_ms", "cache_enabled", "cache_hits", "prompt_preview", "token_ids",
	}, keysOf(got))
	require.Positive(t, got["ttft_ms"])
	require.GreaterOrEqual(t, got["latency_ms"], got["ttft_ms"])
	require.Equal(t, true, got["cache_enabled"])
	require.InDelta(t, 8, got["completion_tokens"], 0)
	require.Len(t, got["token_ids"], 8)
	// "Task:" is one word that is in no vocabulary, then the task and two turns.
	require.InDelta(t, 2*size+5, got["prompt_tokens"], 0)
	require.True(t, strings.HasPrefix(got["prompt_preview"].(string), "w109 w150 "), got["prompt_preview"])
	require.Equal(t, []any{map[string]any{
		"chunk_key": chunkKey(littleEndian(tokens(1, 2*size)), "").String(), "start_slot": 0.0, "num_slots": 2.0,
		"token_count": 2.0 * size, "pos_offset": 0.0, "model_id": "nano", "file_offset": 0.0, "target_token_start": 0.0,
	}}, got["cache_hits"])

	ask["use_kv_cache"] = false
	var cold map[string]any
	s.do(t, http.MethodPost, "/infer", ask, &cold)
	require.Equal(t, false, cold["cache_enabled"])
	require.Empty(t, cold["cache_hits"])
	require.Equal(t, cold["text"], got["text"], "one document that was not moved is no loss")

	ask["use_kv_cache"], ask["trace_cache"] = true, false
	s.do(t, http.MethodPost, "/infer", ask, &cold)
	require.Equal(t, true, cold["cache_enabled"])
	require.Empty(t, cold["cache_hits"])
}

func keysOf(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// TestInferDefaults: without gen_params, 256 tokens at a temperature.
func TestInferDefaults(t *testing.T) {
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, size))
	ask := object{"doc_ids": []string{id}, "task": "w20", "gen_params": object{"ignore_eos": true}}
	var first, second map[string]any
	s.do(t, http.MethodPost, "/infer", ask, &first)
	s.do(t, http.MethodPost, "/infer", ask, &second)
	require.InDelta(t, 256, first["completion_tokens"], 0)
	require.NotEqual(t, first["text"], second["text"])
	require.NotContains(t, first, "token_ids")
}

// TestInferStreams: the stream is the engine's own, to the token.
func TestInferStreams(t *testing.T) {
	s := newStack(t, Chunk)
	ids, task := tokens(1, 3*size), tokens(2, 5)
	id := s.upload(t, ids)
	prompt := slices.Concat(ids, task)
	want := s.complete(t, prompt, object{"kv_transfer_params": object{"daser_skip_load": true, "daser_skip_save": true}})

	cold := s.infer(t, task, false, id)
	require.Zero(t, cold.cached)
	require.Equal(t, len(prompt), cold.prompt)
	requireSame(t, want, cold)
	warm := s.infer(t, task, true, id)
	require.Equal(t, 3*size, warm.cached)
	requireSame(t, want, warm)

	response, err := http.Post(s.url+"/infer", "application/json", strings.NewReader(`{"doc_ids":["`+id+`"],"task":"w9","stream":true}`))
	require.NoError(t, err)
	require.Equal(t, "text/event-stream; charset=utf-8", response.Header.Get("Content-Type"))
	require.NoError(t, response.Body.Close())
}

// TestInferPublishesNothing: what /infer asks is never stored.
func TestInferPublishesNothing(t *testing.T) {
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, 2*size))
	for _, cached := range []bool{true, false} {
		s.infer(t, tokens(2, 2*size), cached, id)
		s.drain(t)
		require.Len(t, s.store.committed, 1)
	}
}

// TestPromptParts: prefix, documents and separators fill whole blocks, the
// task does not; what is fixed is prefilled before the first request.
func TestPromptParts(t *testing.T) {
	prefix, separator := tokens(7, size+3), tokens(8, 2)
	s := newStack(t, Chunk, func(p *plan) { p.server.Prefix, p.server.Separator = prefix, separator })
	a, b := s.upload(t, tokens(1, size)), s.upload(t, tokens(2, 2*size-1))
	pad := func(ids []int32) []int32 { return s.server.padded(ids) }
	want := slices.Concat(pad(prefix), pad(tokens(1, size)), pad(separator), pad(tokens(2, 2*size-1)), tokens(3, 5))
	require.Len(t, want, 2*size+size+size+2*size+5)
	skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
	direct := s.complete(t, want, skip)
	got := s.infer(t, tokens(3, 5), true, a, b)
	require.Equal(t, len(want), got.prompt)
	require.Equal(t, 6*size, got.cached)
	requireSame(t, direct, got)
	require.Len(t, s.store.committed, 4, "two fixed segments and two documents")

	// A document that is also the separator does not take it along.
	same := s.upload(t, separator)
	var deleted map[string]any
	s.do(t, http.MethodDelete, "/documents/"+same, nil, &deleted)
	require.InDelta(t, 0, deleted["chunks_evicted"], 0)
}

// TestChatPrefix: without a configured prefix there is one of the chat's.
func TestChatPrefix(t *testing.T) {
	s := newStack(t, Chunk, func(p *plan) { p.server.Prefix = nil })
	id := s.upload(t, tokens(1, size))
	got := s.infer(t, tokens(2, 3), true, id)
	require.Equal(t, 2*size+3, got.prompt)
	require.Equal(t, 2*size, got.cached)
}

// TestPrefixOfARequest: prompts of a plan bring their own prefix; with the
// upload it is there before the first of them.
func TestPrefixOfARequest(t *testing.T) {
	for _, early := range []bool{true, false} {
		s := newStack(t, Chunk, func(p *plan) { p.server.Prefix = tokens(9, size) })
		prefix, document, task := tokens(5, 2*size), tokens(1, 3*size), tokens(3, 5)
		body := object{"title": "a", "token_ids": document}
		if early {
			body["prefix_token_ids"] = prefix
		}
		var created struct {
			ID string `json:"doc_id"`
		}
		s.do(t, http.MethodPost, "/documents", body, &created)
		require.Equal(t, early, s.store.Has(chunkKey(littleEndian(prefix), "")))
		ask := object{"doc_ids": []string{created.ID}, "task_token_ids": task, "prefix_token_ids": prefix}
		want := slices.Concat(prefix, document, task)

		cold := s.inferBody(t, object{"doc_ids": []string{created.ID}, "task_token_ids": task, "prefix_token_ids": prefix, "use_kv_cache": false})
		require.Zero(t, cold.cached)
		requireSame(t, s.complete(t, want, object{"kv_transfer_params": object{"daser_skip_load": true, "daser_skip_save": true}}), cold)
		warm := s.inferBody(t, ask)
		require.Equal(t, len(want), warm.prompt)
		require.Equal(t, 5*size, warm.cached)

		none := s.inferBody(t, object{"doc_ids": []string{created.ID}, "task_token_ids": task, "prefix_token_ids": []int32{}})
		require.Equal(t, len(document)+len(task), none.prompt)
		require.Equal(t, 3*size, none.cached)
	}
}

// TestOnePrefillOfASharedPrefix: uploads that come together with the same
// prefix have it prefilled once.
func TestOnePrefillOfASharedPrefix(t *testing.T) {
	s := newStack(t, Chunk)
	prefix := tokens(5, 2*size)
	t.Run("uploads", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s.do(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": tokens(i, size), "prefix_token_ids": prefix}, nil)
			})
		}
	})
	require.InDelta(t, 1, s.counter(t, `daser_cache_lookup_total{result="miss"}`), 0)
	require.InDelta(t, -1, s.counter(t, `daser_cache_lookup_total{result="hit"}`), 0)
	require.InDelta(t, 5, s.counter(t, "daser_cache_committed_chunks_total"), 0)

	require.NoError(t, s.injector.Plant(fault.LostStore))
	body := object{"title": "a", "token_ids": tokens(0, size), "prefix_token_ids": tokens(6, size)}
	s.refused(t, http.MethodPost, "/documents", body, http.StatusGatewayTimeout, "not committed")
}

func TestInferRefuses(t *testing.T) {
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, size))
	for _, test := range []struct {
		name, want string
		body       any
		status     int
	}{
		{"no JSON", "JSON decode error", "", http.StatusUnprocessableEntity},
		{"no task", `["body","task"]`, object{"doc_ids": []string{id}}, http.StatusUnprocessableEntity},
		{"ids of a wrong kind", `["body","doc_ids"]`, object{"doc_ids": 7, "task": "w8"}, http.StatusUnprocessableEntity},
		{"unknown parameter", "best_of is not known here; there are max_tokens,", object{"doc_ids": []string{id}, "task": "w8", "gen_params": object{"best_of": 2}}, http.StatusUnprocessableEntity},
		{"no ids", "doc_ids is empty", object{"doc_ids": []string{}, "task": "w8"}, http.StatusBadRequest},
		{"unknown document", `document \"nope\" is not known`, object{"doc_ids": []string{id, "nope"}, "task": "w8"}, http.StatusNotFound},
		{"a parameter that the engine refuses", "max_tokens must be at least 1", object{"doc_ids": []string{id}, "task": "w8", "gen_params": object{"max_tokens": 0}}, http.StatusBadGateway},
		{"longer than the context", "status 400", object{"doc_ids": []string{id}, "task_token_ids": tokens(1, 1024)}, http.StatusBadGateway},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.refused(t, http.MethodPost, "/infer", test.body, test.status, test.want)
		})
	}
	s.refused(t, http.MethodGet, "/status", nil, http.StatusNotFound, "Not Found") // that one is LMCache's
}

// TestInferWithABrokenEngine: a stream passes what it gets; the answer in one
// piece knows that it is none.
func TestInferWithABrokenEngine(t *testing.T) {
	for _, f := range []fault.Fault{fault.ErrorEvent, fault.Truncate} {
		t.Run(string(f), func(t *testing.T) {
			s := newStack(t, Chunk)
			id := s.upload(t, tokens(1, size))
			require.NoError(t, s.injector.Plant(f))
			ask := object{"doc_ids": []string{id}, "task": "w9", "gen_params": greedy}
			s.refused(t, http.MethodPost, "/infer", ask, http.StatusBadGateway, "the engine")
			data, err := json.Marshal(object{"doc_ids": []string{id}, "task": "w9", "gen_params": greedy, "stream": true})
			require.NoError(t, err)
			response, err := http.Post(s.url+"/infer", "application/json", strings.NewReader(string(data)))
			require.NoError(t, err)
			text := new(strings.Builder)
			_, err = io.Copy(text, response.Body)
			require.NoError(t, response.Body.Close())
			require.NotContains(t, text.String(), `"usage"`)
			if f == fault.Truncate {
				require.Error(t, err, "a cut stream is cut for the client, too")
			} else {
				require.Contains(t, text.String(), `data: {"error":`)
			}
		})
	}
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, size))
	s.engineHTTP.Close()
	s.refused(t, http.MethodPost, "/infer", object{"doc_ids": []string{id}, "task": "w9"}, http.StatusBadGateway, "tokenizing the task")
	s.refused(t, http.MethodPost, "/infer", object{"doc_ids": []string{id}, "task_token_ids": []int{9}}, http.StatusBadGateway, "/v1/completions")
}
