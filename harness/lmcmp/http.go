package lmcmp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// httpPatience bounds one HTTP call: the checksums of 64 MiB take 0.4 s.
const httpPatience = 30 * time.Second

// ErrNoHTTP says that the address of the server's HTTP side was not given.
var ErrNoHTTP = errors.New("the URL of the cache server's HTTP side is not known")

// A statusError is an HTTP answer that is not 200.
type statusError struct {
	request string
	code    int
	body    string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.request, e.code, e.body)
}

// httpSide is the server's HTTP side; the zero value is none.
type httpSide struct {
	base   string
	client *http.Client
}

func newHTTPSide(base string) (httpSide, error) {
	if base == "" {
		return httpSide{}, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return httpSide{}, fmt.Errorf("cache server's URL %q: want http://host:port", base)
	}
	return httpSide{
		base:   strings.TrimRight(base, "/"),
		client: &http.Client{Timeout: httpPatience, Transport: &http.Transport{Proxy: nil}},
	}, nil
}

// call sends a request, with a JSON body where there is one, and decodes the
// answer into what into points to; nil drops it.
func (h httpSide) call(ctx context.Context, method, path string, body, into any) error {
	if h.client == nil {
		return ErrNoHTTP
	}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, h.base+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return &statusError{method + " " + path, answer.StatusCode, strings.TrimSpace(string(data[:min(len(data), 300)]))}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s %s: decoding the answer: %w", method, path, err)
	}
	return nil
}

// version asks for the release.
func (h httpSide) version(ctx context.Context) (string, error) {
	var version string
	err := h.call(ctx, http.MethodGet, "/version", nil, &version)
	return version, err
}

// configuration is the part of the server's configuration that matters here.
type configuration struct {
	MP struct {
		ChunkSize int    `json:"chunk_size"`
		Modes     string `json:"supported_transfer_mode"`
		Workers   int    `json:"max_gpu_workers"`
		ShmName   string `json:"shm_name"`
		NullBlock *int   `json:"null_block_id"`
	} `json:"mp"`
}

// Status is the part of GET /status that says whether the server is at rest,
// and what it holds.
type Status struct {
	ChunkSize int
	Objects   int // in L1
	ReadLocks int // objects locked for readers
	Busy      string
}

// Status reads GET /status.
func (s *Server) Status(ctx context.Context) (Status, error) {
	var answer struct {
		ChunkSize int `json:"chunk_size"`
		Storage   *struct {
			L1 struct {
				Objects     int `json:"total_object_count"`
				WriteLocked int `json:"write_locked_count"`
				ReadLocked  int `json:"read_locked_count"`
			} `json:"l1_manager"`
			Store struct {
				Pending  int `json:"pending_keys_count"`
				InFlight int `json:"in_flight_task_count"`
			} `json:"store_controller"`
			Prefetch struct {
				Submission int `json:"submission_queue_size"`
				Pending    int `json:"pending_queue_size"`
				InFlight   int `json:"in_flight_request_count"`
			} `json:"prefetch_controller"`
		} `json:"storage_manager"`
	}
	if err := s.http.call(ctx, http.MethodGet, "/status", nil, &answer); err != nil {
		return Status{}, fmt.Errorf("reading the cache server's status: %w", err)
	}
	if answer.Storage == nil {
		return Status{}, errors.New("reading the cache server's status: it has no storage_manager")
	}
	st := Status{ChunkSize: answer.ChunkSize, Objects: answer.Storage.L1.Objects, ReadLocks: answer.Storage.L1.ReadLocked}
	for _, queue := range []struct {
		name string
		n    int
	}{
		{"stores pending", answer.Storage.Store.Pending},
		{"stores in flight", answer.Storage.Store.InFlight},
		{"objects locked for writing", answer.Storage.L1.WriteLocked},
		{"prefetches submitted", answer.Storage.Prefetch.Submission},
		{"prefetches pending", answer.Storage.Prefetch.Pending},
		{"prefetches in flight", answer.Storage.Prefetch.InFlight},
	} {
		if queue.n > 0 {
			st.Busy = fmt.Sprintf("%d %s", queue.n, queue.name)
		}
	}
	return st, nil
}

// ClearL1 empties the server's memory, but for what is locked.
func (s *Server) ClearL1(ctx context.Context) error {
	var body any
	if !s.Dialect.Routes.Query {
		body = map[string]any{"tier": "l1", "force": false}
	}
	if err := s.http.call(ctx, http.MethodPost, s.Dialect.Routes.Clear, body, nil); err != nil {
		return fmt.Errorf("clearing the cache server: %w", err)
	}
	return nil
}

// ErrNoChecksums says that the server has no checksums of this client's memory:
// it was registered for engine_driven transfers, or not at all.
var ErrNoChecksums = errors.New("the cache server has no checksums of this memory")

// Checksums asks the server for the MD5 sums of the memory that an instance has
// registered, one for each chunk of perChunk blocks. They are of that memory as
// it is now, and say nothing about what is cached.
func (s *Server) Checksums(ctx context.Context, instance int, blocks []int, perChunk int) ([]string, error) {
	var answer struct {
		Status    string   `json:"status"`
		Checksums []string `json:"chunk_checksums"`
	}
	var err error
	if routes := s.Dialect.Routes; routes.Query {
		ids := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(blocks)), ","), "[]")
		query := url.Values{"block_ids": {ids}, "chunk_size": {strconv.Itoa(perChunk)}, "instance_id": {strconv.Itoa(instance)}, "layerwise": {"false"}}
		err = s.http.call(ctx, http.MethodGet, routes.Checksums+"?"+query.Encode(), nil, &answer)
	} else {
		body := map[string]any{"block_ids": blocks, "chunk_size": perChunk, "instance_id": instance, "layerwise": false}
		err = s.http.call(ctx, http.MethodPost, routes.Checksums, body, &answer)
	}
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound && strings.Contains(status.body, "not registered") {
		return nil, fmt.Errorf("%w (instance %d)", ErrNoChecksums, instance)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the cache server for checksums: %w", err)
	}
	if answer.Status != "success" || len(answer.Checksums) != len(blocks)/perChunk {
		return nil, fmt.Errorf("asking the cache server for checksums: status %q and %d sums for %d chunks", answer.Status, len(answer.Checksums), len(blocks)/perChunk)
	}
	return answer.Checksums, nil
}
