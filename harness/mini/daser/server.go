package daser

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// How long DaseR waits before it answers 504.
const (
	DefaultDrainTimeout  = 300 * time.Second
	DefaultCommitTimeout = 300 * time.Second
)

// The words around documents and a task where they come as text. The turns
// are those of the model's chat template.
const (
	chatPrefix  = "<|system|> Answer from the documents alone. <|end|> <|user|> Documents:"
	chatTask    = "Task: "
	chatRequest = " <|end|> <|assistant|>"
)

// A ServerConfig says what a server stands in front of.
type ServerConfig struct {
	Store     *Store
	Engine    string  // base URL
	Prefix    []int32 // before the documents of each prompt, padded to B; nil: a chat prefix; empty: none
	Separator []int32 // between documents, padded to B; empty: none
	Check     *Check  // answers /debug/kvcheck; nil: refused

	DrainTimeout  time.Duration // 0: DefaultDrainTimeout
	CommitTimeout time.Duration // of an upload; 0: DefaultCommitTimeout
}

// A Server is DaseR's HTTP server. It has no state that outlives it.
type Server struct {
	cfg       ServerConfig
	store     *Store
	engine    *engineClient
	documents *registry
	ensuring  chan struct{} // holds one token: a segment is prefilled once
	prefix    []int32       // padded
	separator []int32       // padded
}

// NewServer returns a server that is not ready before Start.
func NewServer(c ServerConfig) *Server {
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.CommitTimeout = cmp.Or(c.CommitTimeout, DefaultCommitTimeout)
	return &Server{cfg: c, store: c.Store, engine: newEngineClient(c.Engine), documents: newRegistry(), ensuring: make(chan struct{}, 1)}
}

// Start asks the engine for its model and, in chunk mode, has it prefill what
// is the same in every prompt: the chat prefix and the separator.
func (s *Server) Start(ctx context.Context) error {
	if err := s.engine.findModel(ctx); err != nil {
		return fmt.Errorf("starting the DaseR server: %w", err)
	}
	prefix := s.cfg.Prefix
	if prefix == nil {
		var err error
		if prefix, err = s.engine.tokenize(ctx, chatPrefix); err != nil {
			return fmt.Errorf("starting the DaseR server: %w", err)
		}
	}
	s.prefix, s.separator = s.padded(prefix), s.padded(s.cfg.Separator)
	for _, segment := range [][]int32{s.prefix, s.separator} {
		if err := s.ensure(ctx, segment); err != nil {
			return fmt.Errorf("starting the DaseR server: %w", err)
		}
	}
	return nil
}

// Close gives up the connections to the engine.
func (s *Server) Close() { s.engine.close() }

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.store.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /drain", s.drain)
	mux.HandleFunc("POST /documents", s.upload)
	mux.HandleFunc("GET /documents", s.list)
	mux.HandleFunc("GET /documents/{id}", s.show)
	mux.HandleFunc("DELETE /documents/{id}", s.remove)
	mux.HandleFunc("POST /infer", s.infer)
	mux.HandleFunc("/debug/kvcheck", s.kvCheck)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusNotFound, "Not Found")
	})
	return mux
}

// health is 200 even when the engine is down. block_tokens is not DaseR's:
// there a client asks for the block size over the IPC (get_runtime_config).
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	up, status := s.engine.healthy(r.Context()), "ok"
	value := 1.0
	if !up {
		status, value = "degraded", 0
	}
	s.store.metrics.engineHealth.WithLabelValues().Set(value)
	writeJSON(w, http.StatusOK, struct {
		Status      string `json:"status"`
		VLLM        bool   `json:"vllm"`
		BlockTokens int    `json:"block_tokens"`
	}{status, up, s.store.Chunk()})
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.store.Drain(ctx); err != nil {
		writeError(w, http.StatusGatewayTimeout, fmt.Sprintf("draining: %v", err))
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
}

// padded fills ids up to whole blocks.
func (s *Server) padded(ids []int32) []int32 {
	out := append([]int32(nil), ids...)
	for len(out)%s.store.Chunk() != 0 {
		out = append(out, tokenizer.PAD)
	}
	return out
}

// ensure makes a segment that many prompts share findable in chunk mode. A
// segment that is not there costs a core lookup, which counts, and a prefill.
func (s *Server) ensure(ctx context.Context, segment []int32) error {
	if s.store.Mode() != Chunk || len(segment) == 0 {
		return nil
	}
	key := chunkKey(littleEndian(segment), "")
	s.documents.keep(key)
	if s.store.Has(key) {
		return nil
	}
	select {
	case s.ensuring <- struct{}{}:
		defer func() { <-s.ensuring }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the prefill of a fixed segment: %w", ctx.Err())
	}
	if s.store.Has(key) {
		return nil // another request was faster
	}
	if _, err := s.store.Trace(ctx, kv.Request{ID: "segment", Tokens: segment}); err != nil {
		return fmt.Errorf("checking a fixed segment of %d tokens: %w", len(segment), err)
	}
	if err := s.engine.prefill(ctx, segment); err != nil {
		return fmt.Errorf("prefilling a fixed segment of %d tokens: %w", len(segment), err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
	defer cancel()
	return s.store.Await(ctx, key)
}
