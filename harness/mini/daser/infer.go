package daser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/kv"
)

// An inference is the body of POST /infer. TaskTokenIDs, PrefixTokenIDs and
// Stream are not DaseR's. Ids make the prompt exactly what the client means;
// a prefix replaces the server's, and an empty one is none. With stream the
// answer is the engine's own event stream of /v1/completions, usage included,
// so that the client can stamp the first token itself.
type inference struct {
	Documents      []string                   `json:"doc_ids"`
	Task           *string                    `json:"task"`
	TaskTokenIDs   []int32                    `json:"task_token_ids"`
	PrefixTokenIDs *[]int32                   `json:"prefix_token_ids"`
	UseKVCache     *bool                      `json:"use_kv_cache"`
	TraceCache     *bool                      `json:"trace_cache"`
	Stream         bool                       `json:"stream"`
	Generation     map[string]json.RawMessage `json:"gen_params"`
}

// generation lists what gen_params may have; it goes to the engine as it is.
var generation = []string{"max_tokens", "min_tokens", "temperature", "top_p", "seed", "ignore_eos", "logprobs", "return_token_ids"}

func given(b *bool) bool { return b == nil || *b }

func (s *Server) infer(w http.ResponseWriter, r *http.Request) {
	var body inference
	if !readBody(w, r, &body) {
		return
	}
	if body.Task == nil && body.TaskTokenIDs == nil {
		refuse(w, "task", "Field required")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(body.Generation)) {
		if !slices.Contains(generation, name) {
			refuse(w, "gen_params", fmt.Sprintf("%s is not known here; there are %s", name, strings.Join(generation, ", ")))
			return
		}
	}
	if len(body.Documents) == 0 {
		writeError(w, http.StatusBadRequest, "doc_ids is empty: name at least one document")
		return
	}
	documents := make([]document, len(body.Documents))
	for i, id := range body.Documents {
		d, ok := s.documents.get(id)
		switch {
		case !ok:
			writeError(w, http.StatusNotFound, fmt.Sprintf("document %q is not known", id))
			return
		case len(d.tokens) == 0:
			writeError(w, http.StatusConflict, fmt.Sprintf("document %q has no tokens: its status is %s", id, d.status))
			return
		}
		documents[i] = d
	}
	s.answer(w, r, body, documents)
}

// answer assembles the prompt and has the engine complete it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, body inference, documents []document) {
	prompt, err := s.prompt(r.Context(), body, documents)
	if err != nil {
		writeError(w, http.StatusBadGateway, err.Error())
		return
	}
	hits := []cacheHit{}
	if given(body.UseKVCache) && given(body.TraceCache) {
		traced, err := s.store.Trace(r.Context(), kv.Request{ID: "trace", Tokens: prompt})
		if err != nil {
			writeError(w, http.StatusBadGateway, err.Error())
			return
		}
		hits = s.describe(traced)
	}
	fields := map[string]any{
		"model": s.engine.model, "prompt": prompt, "max_tokens": 256, "temperature": 0.7,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
		"kv_transfer_params": transferParams(given(body.UseKVCache)),
	}
	for name, value := range body.Generation {
		fields[name] = value
	}
	header := http.Header{}
	if id := r.Header.Get("X-Request-Id"); id != "" {
		header.Set("X-Request-Id", id)
	}
	start := time.Now()
	response, err := s.engine.send(r.Context(), http.MethodPost, "/v1/completions", fields, header)
	if err != nil {
		writeError(w, http.StatusBadGateway, err.Error())
		return
	}
	defer func() { _ = response.Body.Close() }() // read to its end, or the client is gone
	if body.Stream {
		relay(w, response)
		return
	}
	s.collect(w, r, start, response.Body, summary{Cached: given(body.UseKVCache), Hits: hits}, prompt)
}

// transferParams are what /infer always asks of the connector: no prompt is
// published, and without the cache none is loaded.
func transferParams(cached bool) map[string]bool {
	p := map[string]bool{"daser_skip_save": true}
	if !cached {
		p["daser_skip_load"] = true
	}
	return p
}

// prompt is the prefix and the documents, all padded to whole blocks, with a
// separator between documents where one is configured, and the task.
func (s *Server) prompt(ctx context.Context, body inference, documents []document) ([]int32, error) {
	prefix := s.prefix
	if body.PrefixTokenIDs != nil {
		prefix = s.padded(*body.PrefixTokenIDs)
		if given(body.UseKVCache) {
			if err := s.ensure(ctx, prefix); err != nil {
				return nil, err
			}
		}
	}
	if s.store.cfg.Planted(fault.ReorderedDocuments) && given(body.UseKVCache) {
		documents = slices.Clone(documents)
		slices.Reverse(documents)
	}
	prompt := slices.Clone(prefix)
	for i, d := range documents {
		if i > 0 {
			prompt = append(prompt, s.separator...)
		}
		prompt = append(prompt, d.tokens...)
	}
	if body.TaskTokenIDs != nil {
		return append(prompt, body.TaskTokenIDs...), nil
	}
	task, err := s.engine.tokenize(ctx, chatTask+*body.Task+chatRequest)
	if err != nil {
		return nil, fmt.Errorf("tokenizing the task: %w", err)
	}
	return append(prompt, task...), nil
}

// relay passes the engine's stream on, each piece as it comes. It ends when
// either side does; a stream that breaks breaks here too.
func relay(w http.ResponseWriter, response *http.Response) {
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil || control.Flush() != nil {
				return
			}
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			panic(http.ErrAbortHandler) // the client must not take it for an end
		}
	}
}

// A cacheHit is how /infer shows a chunk that a lookup found.
type cacheHit struct {
	Key        string `json:"chunk_key"`
	StartSlot  int    `json:"start_slot"`
	NumSlots   int    `json:"num_slots"`
	Tokens     int    `json:"token_count"`
	Position   int    `json:"pos_offset"` // at which its KV was computed
	Model      string `json:"model_id"`
	FileOffset int64  `json:"file_offset"`
	Target     int    `json:"target_token_start"`
}

func (s *Server) describe(hits []Hit) []cacheHit {
	described := []cacheHit{}
	for _, h := range hits {
		described = append(described, cacheHit{
			Key: h.Key.String(), StartSlot: h.Slot, NumSlots: h.Tokens / s.store.Chunk(), Tokens: h.Tokens,
			Position: h.Offset - h.Moved, Model: s.engine.model,
			FileOffset: int64(h.Slot) * s.store.cfg.slotBytes(), Target: h.Offset,
		})
	}
	return described
}
