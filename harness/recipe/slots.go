package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/row"
)

// slots keeps the KV of llama.cpp's slots in files: each request gets a slot of
// its own, into which the file of an equal prompt is read before it and from
// which one is written after it. Source of the routes: llama.cpp's server,
// observed in xllamacpp 2026.10.11549.
type slots struct {
	base   string
	model  string
	dir    string // in which the server keeps the files
	http   *http.Client
	client *openai.Client
	free   chan int

	mu     sync.Mutex
	files  map[string]string // by prompt
	saved  int               // files so far, those of earlier cycles included
	failed error             // stores that did not work, until somebody was told
}

func newSlots(client *openai.Client, e Endpoints, concurrency int, admin *http.Client) *slots {
	s := &slots{
		base: e.Engine, model: e.Model, dir: e.SlotDir, http: admin, client: client,
		free: make(chan int, concurrency), files: make(map[string]string),
	}
	for slot := range concurrency {
		s.free <- slot
	}
	return s
}

// Do asks for one completion in a free slot. Reading the file is part of the
// request: the time to first token counts from before it.
func (s *slots) Do(ctx context.Context, r row.Request) row.Timeline {
	var slot int
	select {
	case slot = <-s.free:
		defer func() { s.free <- slot }()
	case <-ctx.Done():
		return row.Timeline{ID: r.ID, Status: row.Cancelled, Err: context.Cause(ctx).Error()}
	}
	key := documentKey(r.Prompt)
	file, stored := s.fileOf(key)
	began := time.Now()
	if stored {
		if err := s.act(ctx, slot, "restore", file); err != nil {
			return row.Timeline{ID: r.ID, Status: row.HTTPError, Err: err.Error(), Sent: began, End: time.Now()}
		}
	}
	body := map[string]any{
		"model": s.model, "prompt": r.Prompt, "max_tokens": r.MaxTokens, "temperature": r.Temperature, "ignore_eos": r.IgnoreEOS,
		"stream": true, "stream_options": map[string]any{"include_usage": true}, "id_slot": slot, "cache_prompt": true,
	}
	if r.Logprobs > 0 {
		body["logprobs"] = r.Logprobs
	}
	t := s.client.Stream(ctx, "/v1/completions", r.ID, body)
	t.Sent = began
	if t.Status == row.OK && !stored {
		s.store(ctx, slot, key)
	}
	if err := s.act(ctx, slot, "erase", ""); err != nil {
		s.fail(err)
	}
	return t
}

func (s *slots) fileOf(key string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, ok := s.files[key]
	return file, ok
}

// store writes a slot to a file of its own.
func (s *slots) store(ctx context.Context, slot int, key string) {
	s.mu.Lock()
	file := fmt.Sprintf("%06d.bin", s.saved) // two requests with one prompt save twice
	s.saved++
	s.mu.Unlock()
	if err := s.act(ctx, slot, "save", file); err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[key] = file
}

func (s *slots) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// act lets the server do something with a slot.
func (s *slots) act(ctx context.Context, slot int, action, file string) error {
	doing := fmt.Sprintf("POST /slots/%d?action=%s (%s)", slot, action, file)
	body, err := json.Marshal(map[string]string{"filename": file})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	url := fmt.Sprintf("%s/slots/%d?action=%s", s.base, slot, action)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.http.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", doing, response.Status, bytes.TrimSpace(answer))
	}
	return nil
}

// clear deletes the files. The slots are empty already: each request leaves its
// own so.
func (s *slots) clear(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, file := range s.files {
		if err := os.Remove(filepath.Join(s.dir, file)); err != nil {
			return fmt.Errorf("deleting what a slot was saved to: %w", err)
		}
		delete(s.files, key)
	}
	return nil
}

// busy tells whether a store failed: what was not written cannot be read. That is
// the fault of the pass that stored it, and not of those that follow.
func (s *slots) busy(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.failed
	s.failed = nil
	return "", failed
}

func (s *slots) blockSize(context.Context) (int, error) {
	return 0, errors.New("llama.cpp has no blocks")
}
