package daser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// An upload is the body of POST /documents. TokenIDs and PrefixTokenIDs are
// not DaseR's: with ids the prompt is exactly what the client means, and a
// prefix that the prompts of this document will have is prefilled with it.
type upload struct {
	Title          *string `json:"title"`
	Text           *string `json:"text"`
	TokenIDs       []int32 `json:"token_ids"`
	PrefixTokenIDs []int32 `json:"prefix_token_ids"`
}

// A failure is how an upload went wrong.
type failure struct {
	status int
	err    error
}

// failed is 504 where a store was not committed, in time or at all, and 502
// for all that the engine did wrong.
func failed(err error) *failure {
	if errors.Is(err, ErrNotStored) || errors.Is(err, context.DeadlineExceeded) {
		return &failure{http.StatusGatewayTimeout, fmt.Errorf("the store was not committed: %w", err)}
	}
	return &failure{http.StatusBadGateway, err}
}

// upload answers once the document can be found: after tokenizing, prefill and
// commit.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	if s.store.Mode() != Chunk {
		writeError(w, http.StatusBadRequest, "documents need the cache reuse mode chunk, this server runs in mode "+string(s.store.Mode()))
		return
	}
	var body upload
	if !readBody(w, r, &body) {
		return
	}
	switch {
	case body.Title == nil:
		refuse(w, "title", "Field required")
	case body.Text == nil && body.TokenIDs == nil:
		refuse(w, "text", "Field required")
	case body.Text != nil && body.TokenIDs != nil:
		refuse(w, "token_ids", "Give text or token_ids, not both")
	case body.Text != nil && strings.TrimSpace(*body.Text) == "" || body.Text == nil && len(body.TokenIDs) == 0:
		writeError(w, http.StatusBadRequest, "the document is empty: it has no tokens")
	default:
		s.takeIn(w, r, body)
	}
}

func (s *Server) takeIn(w http.ResponseWriter, r *http.Request, body upload) {
	text := ""
	if body.Text != nil {
		text = *body.Text
	}
	id := s.documents.add(*body.Title, text)
	took, failure := s.register(r.Context(), id, body)
	if failure != nil {
		s.documents.change(id, func(d *document) { d.status, d.failure = statusFailed, failure.err.Error() })
		writeError(w, failure.status, failure.err.Error())
		return
	}
	s.documents.change(id, func(d *document) { d.status = statusReady })
	writeJSON(w, http.StatusCreated, struct {
		ID        string  `json:"doc_id"`
		Status    string  `json:"status"`
		Chunks    int     `json:"chunk_count"`
		Cached    int     `json:"chunk_count_cached"`
		PrefillMS float64 `json:"prefill_ms"`
	}{id, statusReady, 1, 1, milliseconds(took)})
}

// register tokenizes a document and has the engine prefill it, unless its
// chunk is there already. It returns how long the prefill took.
func (s *Server) register(ctx context.Context, id string, body upload) (time.Duration, *failure) {
	ids := body.TokenIDs
	if body.Text != nil {
		var err error
		if ids, err = s.engine.tokenize(ctx, *body.Text); err != nil {
			return 0, failed(fmt.Errorf("tokenizing the document: %w", err))
		}
	}
	ids = s.padded(ids)
	key := chunkKey(littleEndian(ids), "")
	s.documents.change(id, func(d *document) { d.tokens, d.key = ids, key })
	if err := s.ensure(ctx, s.padded(body.PrefixTokenIDs)); err != nil {
		return 0, failed(err)
	}
	if s.store.Has(key) {
		return 0, nil
	}
	start := time.Now()
	if err := s.engine.prefill(ctx, ids); err != nil {
		return 0, failed(fmt.Errorf("prefilling the document's %d tokens: %w", len(ids), err))
	}
	took := time.Since(start)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
	defer cancel()
	if err := s.store.Await(ctx, key); err != nil {
		return took, failed(err)
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

// cached is how many chunks of a document a lookup would find: its only one,
// or none.
func (s *Server) cached(d document) int {
	if len(d.tokens) > 0 && s.store.Has(d.key) {
		return 1
	}
	return 0
}

// chunks is how many chunks a document has: one, as soon as it has tokens.
func (d document) chunks() int { return min(1, len(d.tokens)) }

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	type entry struct {
		ID      string  `json:"doc_id"`
		Title   string  `json:"title"`
		Tokens  int     `json:"token_count"`
		Chunks  int     `json:"chunk_count_total"`
		Cached  int     `json:"chunk_count_cached"`
		Status  string  `json:"status"`
		Created float64 `json:"created_at"`
	}
	entries := []entry{}
	for _, d := range s.documents.all() {
		entries = append(entries, entry{d.id, d.title, len(d.tokens), d.chunks(), s.cached(d), d.status, seconds(d.created)})
	}
	writeJSON(w, http.StatusOK, entries)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	d, ok := s.documents.get(r.PathValue("id"))
	if !ok {
		writeError(w, http.StatusNotFound, fmt.Sprintf("document %q is not known", r.PathValue("id")))
		return
	}
	keys, mask := []string{}, []bool{}
	if d.chunks() > 0 {
		keys, mask = append(keys, d.key.String()), append(mask, s.cached(d) > 0)
	}
	var failed *string
	if d.failure != "" {
		failed = &d.failure
	}
	writeJSON(w, http.StatusOK, struct {
		ID      string   `json:"doc_id"`
		Title   string   `json:"title"`
		Created float64  `json:"created_at"`
		Tokens  int      `json:"token_count"`
		Keys    []string `json:"chunk_keys"`
		Mask    []bool   `json:"cached_mask"`
		Status  string   `json:"status"`
		Text    string   `json:"text"`
		Error   *string  `json:"error"`
	}{d.id, d.title, seconds(d.created), len(d.tokens), keys, mask, d.status, d.text, failed})
}

// remove forgets a document and evicts its chunk, unless another document or a
// fixed segment has the same.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	evicted := 0
	if !s.documents.remove(r.PathValue("id"), func(key tier.Key) { evicted = s.store.Evict(key) }) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("document %q is not known", r.PathValue("id")))
		return
	}
	writeJSON(w, http.StatusOK, struct {
		OK      bool `json:"ok"`
		Evicted int  `json:"chunks_evicted"`
	}{true, evicted})
}
