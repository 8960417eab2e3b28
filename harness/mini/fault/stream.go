package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// errorEvent is the event that vLLM 0.32.0 was observed to send under HTTP 200
// when its engine core died in mid-stream, with the end that follows it.
const errorEvent = `data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}` +
	"\n\ndata: [DONE]\n\n"

var (
	promptTokens  = regexp.MustCompile(`"prompt_tokens":\s*\d+`)
	tokensDetails = regexp.MustCompile(`"prompt_tokens_details":\s*\{[^}]*\}`)
)

// A stream is the ResponseWriter of a completion. It takes an SSE stream apart
// into events, to break it at one of them; an answer in one piece counts as
// one event. Only the goroutine of the handler uses it.
type stream struct {
	inner    http.ResponseWriter
	injector *Injector
	client   context.Context // ends when the client leaves
	cancel   func()          // tells the engine that it has left

	head    bool   // the header is out
	events  bool   // it announced an event stream
	pending []byte // the start of an event that is not complete
	passed  int    // events that went through
	broken  bool   // nothing more goes out
	cut     bool   // the connection is to be closed
}

func (s *stream) Header() http.Header { return s.inner.Header() }

func (s *stream) WriteHeader(code int) {
	if !s.head {
		s.head = true
		s.events = strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream")
		if s.injector.Has(PromptLength) || s.injector.Has(SilentUsage) {
			s.Header().Del("Content-Length") // a number may grow by a digit
		}
	}
	s.inner.WriteHeader(code)
}

func (s *stream) Write(p []byte) (int, error) {
	if !s.head {
		s.WriteHeader(http.StatusOK)
	}
	if s.broken {
		return 0, errBroken
	}
	if !s.events {
		if err := s.send(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	s.pending = append(s.pending, p...)
	for {
		at := bytes.Index(s.pending, []byte("\n\n"))
		if at < 0 {
			return len(p), nil
		}
		event := s.pending[:at+2]
		s.pending = s.pending[at+2:]
		if err := s.send(event); err != nil {
			return 0, err
		}
	}
}

// FlushError is what http.ResponseController calls.
func (s *stream) FlushError() error {
	if s.broken {
		return errBroken
	}
	return http.NewResponseController(s.inner).Flush()
}

// Flush implements http.Flusher. Its error comes again at the next write.
func (s *stream) Flush() { _ = s.FlushError() }

// Unwrap gives http.ResponseController what the stream does not change.
func (s *stream) Unwrap() http.ResponseWriter { return s.inner }

// send passes one event on, or strikes.
func (s *stream) send(event []byte) error {
	last := !s.events || bytes.Contains(event, []byte(`"finish_reason":"`)) || bytes.Contains(event, []byte("[DONE]"))
	if s.passed >= healthyChunks || last || s.injector.isDead() {
		if s.strikes(event) {
			s.broken = true
			s.cancel()
			return errBroken
		}
	}
	if s.events && s.passed < 2 && s.injector.Has(SlowFirstEmpty) {
		s.delay(event)
	}
	if s.injector.Has(PromptLength) {
		event = promptTokens.ReplaceAllFunc(event, oneMore)
	}
	if s.injector.Has(SilentUsage) {
		event = tokensDetails.ReplaceAll(event, []byte(`"prompt_tokens_details": null`))
	}
	s.passed++
	_, err := s.inner.Write(event)
	return err
}

// strikes breaks the stream as planted in the place of event.
func (s *stream) strikes(event []byte) bool {
	switch {
	case s.injector.strike():
		s.cut = true
	case s.injector.Has(Truncate):
		s.cut = true
		if !s.events {
			_, _ = s.inner.Write(event[:len(event)/2])
		}
		_ = s.FlushError()
	case s.injector.Has(Stall):
		s.cut = true
		released := s.injector.release()
		_ = s.FlushError()
		select {
		case <-s.client.Done():
		case <-released:
		}
	case s.injector.Has(ErrorEvent) && s.events:
		_, _ = s.inner.Write([]byte(errorEvent))
		_ = s.FlushError()
	default:
		return false
	}
	return true
}

// delay sends an empty chunk in the place of the first token, and that one
// late. A chat begins with an empty chunk of its own.
func (s *stream) delay(event []byte) {
	var chunk struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Model   string `json:"model"`
	}
	if json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &chunk) != nil {
		return
	}
	completion := chunk.Object == "text_completion"
	if completion != (s.passed == 0) {
		return
	}
	if completion {
		empty, err := json.Marshal(chunk)
		if err != nil {
			return
		}
		choices := `,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null}]}`
		_, _ = s.inner.Write([]byte("data: " + strings.TrimSuffix(string(empty), "}") + choices + "\n\n"))
	}
	_ = s.FlushError()
	timer := time.NewTimer(firstTokenDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.client.Done():
	}
}

// end finishes what the handler has left: the connection that a fault cut.
func (s *stream) end() {
	if s.cut {
		abort()
	}
	if len(s.pending) > 0 && !s.broken {
		_, _ = s.inner.Write(s.pending)
	}
}

// oneMore adds one to the number at the end of a field.
func oneMore(field []byte) []byte {
	at := bytes.LastIndexAny(field, ": ") + 1
	n, err := strconv.Atoi(string(field[at:]))
	if err != nil {
		return field
	}
	return strconv.AppendInt(field[:at:at], int64(n+1), 10)
}
