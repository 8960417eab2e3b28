package daser

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/fault"
)

// TestDocumentsLife: upload, list, show, delete.
func TestDocumentsLife(t *testing.T) {
	s := newStack(t, Chunk)
	status, answer := call(t, http.MethodPost, s.url+"/documents", object{"title": "one", "text": "w8 w9 w10"})
	require.Equal(t, http.StatusCreated, status, answer)
	var created map[string]any
	require.NoError(t, json.Unmarshal([]byte(answer), &created))
	id := created["doc_id"].(string)
	require.Positive(t, created["prefill_ms"])
	delete(created, "prefill_ms")
	require.Equal(t, map[string]any{"doc_id": id, "status": "ready", "chunk_count": 1.0, "chunk_count_cached": 1.0}, created)

	ids := append([]int32{8, 9, 10}, make([]int32, size-3)...) // padded
	key := chunkKey(littleEndian(ids), "").String()
	var listed []map[string]any
	s.do(t, http.MethodGet, "/documents", nil, &listed)
	require.Len(t, listed, 1)
	at := listed[0]["created_at"]
	require.Positive(t, at)
	require.Equal(t, map[string]any{
		"doc_id": id, "title": "one", "token_count": float64(size), "chunk_count_total": 1.0,
		"chunk_count_cached": 1.0, "status": "ready", "created_at": at,
	}, listed[0])
	var shown map[string]any
	s.do(t, http.MethodGet, "/documents/"+id, nil, &shown)
	require.Equal(t, map[string]any{
		"doc_id": id, "title": "one", "created_at": at, "token_count": float64(size), "chunk_keys": []any{key},
		"cached_mask": []any{true}, "status": "ready", "text": "w8 w9 w10", "error": nil,
	}, shown)

	// A second document of the same content needs no prefill, and keeps the
	// chunk alive when the first goes.
	var again map[string]any
	s.do(t, http.MethodPost, "/documents", object{"title": "two", "token_ids": []int32{8, 9, 10}}, &again)
	require.InDelta(t, 0, again["prefill_ms"], 0)
	second := again["doc_id"].(string)
	var deleted map[string]any
	s.do(t, http.MethodDelete, "/documents/"+id, nil, &deleted)
	require.Equal(t, map[string]any{"ok": true, "chunks_evicted": 0.0}, deleted)
	require.Equal(t, size, s.infer(t, []int32{11}, true, second).cached)
	s.do(t, http.MethodDelete, "/documents/"+second, nil, &deleted)
	require.Equal(t, map[string]any{"ok": true, "chunks_evicted": 1.0}, deleted)
	s.do(t, http.MethodGet, "/documents", nil, &listed)
	require.Empty(t, listed)
	require.InDelta(t, 1, s.counter(t, `daser_cache_evicted_chunks_total{reason="explicit"}`), 0)

	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		s.refused(t, method, "/documents/"+id, nil, http.StatusNotFound, "not known")
	}
	s.refused(t, http.MethodPost, "/infer", object{"doc_ids": []string{id}, "task": "w9"}, http.StatusNotFound, "not known")
}

// TestADeletedDocumentIsCold: deletion is how a chunk row goes cold.
func TestADeletedDocumentIsCold(t *testing.T) {
	s := newStack(t, Chunk)
	ids := tokens(1, 3*size)
	id := s.upload(t, ids)
	prompt := append(ids, 9, 9)
	skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
	require.Equal(t, 3*size, s.complete(t, prompt, skip).cached)
	s.do(t, http.MethodDelete, "/documents/"+id, nil, nil)
	require.Zero(t, s.complete(t, prompt, skip).cached)
	s.upload(t, ids)
	require.Equal(t, 3*size, s.complete(t, prompt, skip).cached)
}

// TestAnUploadIsReadAlone: whatever is stored, a document is prefilled from
// position 0 without it; KV of two moved documents is never published as one.
func TestAnUploadIsReadAlone(t *testing.T) {
	s := newStack(t, Chunk)
	s.check.Switch(true)
	a, b := tokens(1, 2*size), tokens(2, 2*size)
	s.upload(t, a)
	s.upload(t, b)
	both := append(append([]int32{}, a...), b...)
	// The engine publishes what it computes; this runs on moved KV.
	mixed := append(append([]int32{}, both...), tokens(3, size)...)
	require.Equal(t, 4*size, s.complete(t, mixed, nil).cached)
	s.drain(t)
	require.Equal(t, 4*size, s.complete(t, mixed, nil).cached, "not published")
	require.Empty(t, s.store.lossy, "remembered no longer than needed")
	s.upload(t, both)
	require.Equal(t, 4*size, s.complete(t, append(both, 9), nil).cached)
	// A prompt behind one document that was not moved is as good as a document.
	behind := append(append([]int32{}, a...), tokens(4, size)...)
	require.Equal(t, 2*size, s.complete(t, behind, nil).cached)
	s.drain(t)
	require.Equal(t, 3*size-1, s.complete(t, behind, nil).cached)
	require.Zero(t, s.check.Report().Damaged, "%v", s.check.Report().Mismatches)
	require.Positive(t, s.check.Report().Chunks)
}

func TestUploadsThatAreRefused(t *testing.T) {
	s := newStack(t, Chunk)
	for _, test := range []struct {
		name, want string
		body       any
		status     int
	}{
		{"no JSON", "JSON decode error", "{", http.StatusUnprocessableEntity},
		{"no object", "body", "[]", http.StatusUnprocessableEntity},
		{"no title", `["body","title"]`, object{"text": "w8"}, http.StatusUnprocessableEntity},
		{"no text", `["body","text"]`, object{"title": "a"}, http.StatusUnprocessableEntity},
		{"title of a wrong kind", `["body","title"]`, object{"title": 7, "text": "w8"}, http.StatusUnprocessableEntity},
		{"both", "not both", object{"title": "a", "text": "w8", "token_ids": []int{8}}, http.StatusUnprocessableEntity},
		{"empty", "no tokens", object{"title": "a", "text": ""}, http.StatusBadRequest},
		{"blank", "no tokens", object{"title": "a", "text": " \n"}, http.StatusBadRequest},
		{"no ids", "no tokens", object{"title": "a", "token_ids": []int{}}, http.StatusBadRequest},
		{"an id that is none", "out of vocabulary", object{"title": "a", "token_ids": []int{5000}}, http.StatusBadGateway},
		{"longer than the context", "status 400", object{"title": "a", "token_ids": tokens(1, 1024)}, http.StatusBadGateway},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.refused(t, http.MethodPost, "/documents", test.body, test.status, test.want)
		})
	}
	newStack(t, Prefix).refused(t, http.MethodPost, "/documents", object{"title": "a", "text": "w8"}, http.StatusBadRequest, "mode prefix")
}

// TestUploadWithoutAnEngine: the document is known afterwards, with what went
// wrong, but has no tokens to ask about.
func TestUploadWithoutAnEngine(t *testing.T) {
	s := newStack(t, Chunk)
	s.engineHTTP.Close()
	s.refused(t, http.MethodPost, "/documents", object{"title": "a", "text": "w8"}, http.StatusBadGateway, "tokenizing")
	var listed []struct {
		ID     string `json:"doc_id"`
		Status string `json:"status"`
	}
	s.do(t, http.MethodGet, "/documents", nil, &listed)
	require.Len(t, listed, 1)
	require.Equal(t, "failed", listed[0].Status)
	var shown map[string]any
	s.do(t, http.MethodGet, "/documents/"+listed[0].ID, nil, &shown)
	require.Contains(t, shown["error"], "tokenizing")
	require.Empty(t, shown["chunk_keys"])
	s.refused(t, http.MethodPost, "/infer", object{"doc_ids": []string{listed[0].ID}, "task": "w9"}, http.StatusConflict, "has no tokens")
	s.refused(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": []int{8}}, http.StatusBadGateway, "prefilling")
	var health map[string]any
	s.do(t, http.MethodGet, "/health", nil, &health)
	require.Equal(t, map[string]any{"status": "degraded", "vllm": false, "block_tokens": float64(size)}, health)
	require.InDelta(t, 0, s.counter(t, "daser_vllm_health_up"), 0)
}

// TestUploadThatIsNotCommitted: 504, at once where nothing is on its way.
func TestUploadThatIsNotCommitted(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		g := newGate(t)
		s := newStack(t, Chunk, through(g), impatient)
		t.Cleanup(g.release)
		s.refused(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": tokens(1, size)}, http.StatusGatewayTimeout, "not committed")
	})
	for _, f := range []fault.Fault{fault.LostStore, fault.LateStore} {
		t.Run(string(f), func(t *testing.T) {
			s := newStack(t, Chunk)
			require.NoError(t, s.injector.Plant(f))
			s.refused(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": tokens(1, size)}, http.StatusGatewayTimeout, "nothing is stored or on its way")
		})
	}
}
