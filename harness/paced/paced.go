// Package paced is a server whose answers come at times that are known: the
// first token so long after the request entered its handler, each other one so
// long after the one before, by absolute deadlines that do not drift. What a
// client reports beyond that is the client's own error.
//
//	server := paced.New(paced.Config{TTFT: 50 * time.Millisecond, ITL: 5 * time.Millisecond})
//	go http.Serve(listener, server)
//	…
//	truth := server.Truth() // what it really did, by its own clock
//
// It speaks enough of vLLM's completions for this project's client and for
// `vllm bench serve`, computes nothing, and belongs into a process of its own:
// one that shares a scheduler with its client measures that scheduler.
package paced

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Config says when tokens come.
type Config struct {
	TTFT time.Duration // from the entry of the handler to the first token
	ITL  time.Duration // from one token to the next
}

// A Record is one request as the server saw it.
type Record struct {
	TTFT   time.Duration `json:"ttft_ns"` // from the entry of the handler until the first token was written
	E2E    time.Duration `json:"e2e_ns"`  // until the last token was written
	Tokens int           `json:"tokens"`
}

// A Truth is what a server did since it was last asked to forget.
type Truth struct {
	Records []Record      `json:"records"`
	Peak    int           `json:"peak"`       // most requests in flight at one time
	Elapsed time.Duration `json:"elapsed_ns"` // from the first request's entry until the last one's last token
}

// A Server is the handler.
type Server struct {
	config Config
	mux    *http.ServeMux

	mu       sync.Mutex
	inFlight int
	truth    Truth
	first    time.Time
}

// New makes a server; it starts nothing.
func New(c Config) *Server {
	s := &Server{config: c, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, completion) })
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, chat) })
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"kvproof","max_model_len":32768}]}`, Model)
	})
	s.mux.HandleFunc("GET /truth", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Truth())
	})
	s.mux.HandleFunc("GET /begun", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.Begun()) })
	s.mux.HandleFunc("DELETE /truth", func(http.ResponseWriter, *http.Request) { s.Forget() })
	return s
}

// Model is the name of the only model.
const Model = "paced"

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Truth is what the server did since it last forgot.
func (s *Server) Truth() Truth {
	s.mu.Lock()
	defer s.mu.Unlock()
	truth := s.truth
	truth.Records = append([]Record(nil), s.truth.Records...)
	return truth
}

// Begun says whether a request has come since the server last forgot.
func (s *Server) Begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.first.IsZero()
}

// Forget begins the truth anew.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truth, s.first = Truth{Peak: s.inFlight}, time.Time{}
}

func (s *Server) enter(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
	s.truth.Peak = max(s.truth.Peak, s.inFlight)
	if s.first.IsZero() {
		s.first = at
	}
}

func (s *Server) leave(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if r != nil {
		s.truth.Records = append(s.truth.Records, *r)
		s.truth.Elapsed = time.Since(s.first)
	}
}

// A request holds the fields that matter.
type request struct {
	Prompt        json.RawMessage `json:"prompt"`
	MaxTokens     int             `json:"max_tokens"`
	MaxCompletion int             `json:"max_completion_tokens"`
	Stream        bool            `json:"stream"`
	TokenIDs      bool            `json:"return_token_ids"`
	Options       struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// promptTokens is the length of a prompt of ids, and the words of one of text.
func (q request) promptTokens() int {
	n, inWord := 0, false
	for _, c := range q.Prompt {
		separator := c == ',' || c == ' ' || c == '[' || c == ']' || c == '"'
		if !separator && !inWord {
			n++
		}
		inWord = !separator
	}
	return n
}

// answer streams tokens at their times.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, kind shape) {
	entered := time.Now()
	s.enter(entered)
	var done *Record
	defer func() { s.leave(done) }()
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, `{"error":{"message":`+strconv.Quote(err.Error())+`,"type":"BadRequestError","code":400}}`, http.StatusBadRequest)
		return
	}
	tokens := max(q.MaxTokens, q.MaxCompletion, 1)
	if !q.Stream {
		http.Error(w, `{"error":{"message":"only streams are answered","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(w)
	timer := time.NewTimer(s.config.TTFT - time.Since(entered))
	defer timer.Stop()
	record := Record{Tokens: tokens}
	for i := range tokens {
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		text := kind.token(i, i == tokens-1, q.TokenIDs)
		if i == tokens-1 {
			text = append(text, kind.end(q, tokens)...)
		}
		if _, err := w.Write(text); err != nil || flush.Flush() != nil {
			return
		}
		if i == 0 {
			record.TTFT = time.Since(entered)
		}
		timer.Reset(time.Until(entered.Add(s.config.TTFT + time.Duration(i+1)*s.config.ITL)))
	}
	record.E2E = time.Since(entered)
	done = &record
}
