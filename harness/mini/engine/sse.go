package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// encode writes v as vLLM does: compact, with < and > as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// writeJSON answers with one JSON value. An error of the connection has no one
// to go to: the client is gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"detail":"Internal Server Error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func writeError(w http.ResponseWriter, err error) {
	e := apiErrorOf(err)
	writeJSON(w, e.Code, struct {
		Error *apiError `json:"error"`
	}{e})
}

// An eventStream is an answer as server-sent events. Each event is flushed at
// once; an error means that the client is gone.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// newEventStream sends the header: from here on, errors come as events under
// HTTP 200.
func newEventStream(w http.ResponseWriter) (*eventStream, error) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	return s, s.flush()
}

func (s *eventStream) flush() error {
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("flushing a stream: %w", err)
	}
	return nil
}

// send writes one event.
func (s *eventStream) send(v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	return s.raw(string(data))
}

func (s *eventStream) raw(data string) error {
	if _, err := s.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		return fmt.Errorf("writing to a stream: %w", err)
	}
	return s.flush()
}

// fail ends the stream with an error event and [DONE]. The event has blanks
// after colons and commas, as captured: another encoder writes it than the
// others.
func (s *eventStream) fail(err error) error {
	e := apiErrorOf(err)
	message, encodeErr := encode(e.Message)
	if encodeErr != nil {
		return encodeErr
	}
	param := "null"
	if e.Param != nil {
		param = strconv.Quote(*e.Param)
	}
	event := fmt.Sprintf(`{"error": {"message": %s, "type": "%s", "param": %s, "code": %d}}`, message, e.Type, param, e.Code)
	if err := s.raw(event); err != nil {
		return err
	}
	return s.done()
}

func (s *eventStream) done() error { return s.raw("[DONE]") }
