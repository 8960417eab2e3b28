package recipe

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/row"
)

// A daser is DaseR's HTTP server: what a row asks of it beside the requests.
// Its answers wait for prefills and drains, so only the caller's context bounds
// them. Source of routes and bodies: DaseR's sources.
type daser struct {
	base string
	http *http.Client
	own  *documents // that this process uploaded; nil: it reuses prefixes

	socket string // of its IPC; empty: out of reach
}

func newDaser(base string, chunks bool) daser {
	d := daser{base: base, http: &http.Client{Transport: &http.Transport{Proxy: nil}}}
	if chunks {
		d.own = &documents{ids: make(map[string]string)}
	}
	return d
}

// documents are the ids that a server gave to documents, by their tokens.
type documents struct {
	mu  sync.Mutex
	ids map[string]string
}

func (d *documents) add(key, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids[key] = id
}

// named are the ids of documents, in order; empty where one was not uploaded.
func (d *documents) named(tokens [][]int32) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := make([]string, len(tokens))
	for i, t := range tokens {
		names[i] = d.ids[documentKey(t)]
	}
	return names
}

// take returns every id and forgets them.
func (d *documents) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := slices.Collect(maps.Values(d.ids))
	clear(d.ids)
	return ids
}

// call sends a body, if there is one, and decodes the answer. An answer that
// is not want is an error with the server's words.
func (d daser) call(ctx context.Context, method, path string, body, answer any, want int) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, d.base+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := d.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking DaseR: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading DaseR's answer to %s %s: %w", method, path, err)
	}
	if response.StatusCode != want {
		return answered{response.StatusCode, fmt.Sprintf("DaseR answered %s to %s %s: %s", response.Status, method, path, bytes.TrimSpace(data))}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("reading DaseR's answer to %s %s: %w", method, path, err)
	}
	return nil
}

// answered is an answer with another status than was wanted.
type answered struct {
	status int
	text   string
}

func (a answered) Error() string { return a.text }

// busy asks for a drain, which answers once nothing is going on.
func (d daser) busy(ctx context.Context) (string, error) { return "", d.drain(ctx) }

// drain waits until every store that was begun can be read.
func (d daser) drain(ctx context.Context) error {
	var answer struct {
		OK bool `json:"ok"`
	}
	if err := d.call(ctx, http.MethodPost, "/drain", nil, &answer, http.StatusOK); err != nil {
		return err
	}
	if !answer.OK {
		return errors.New("DaseR answered POST /drain with ok:false")
	}
	return nil
}

// errUntold says that a server does not tell its block size.
var errUntold = errors.New("GET /health has no block_tokens")

// blockSize is the one that the server runs with. DaseR itself tells
// it over its IPC only; the miniature one does in its health.
func (d daser) blockSize(ctx context.Context) (int, error) {
	if d.socket != "" {
		config, err := readDaserConfig(ctx, d.socket)
		return config.BlockTokens, err
	}
	var health struct {
		BlockTokens int `json:"block_tokens"`
	}
	if err := d.call(ctx, http.MethodGet, "/health", nil, &health, http.StatusOK); err != nil {
		return 0, err
	}
	if health.BlockTokens == 0 {
		return 0, errUntold
	}
	return health.BlockTokens, nil
}

// clear deletes the documents that this process uploaded, which is how DaseR's
// chunk mode goes cold for them, and checks that they are gone. Its prefix mode
// has no way: there only content that was never sent is cold, which the plan of
// each cycle is.
func (d daser) clear(ctx context.Context) error {
	if d.own == nil {
		return nil
	}
	ids := d.own.take()
	for _, id := range ids {
		if err := d.call(ctx, http.MethodDelete, "/documents/"+id, nil, nil, http.StatusOK); err != nil {
			return err
		}
	}
	var left []daserDocument
	if err := d.call(ctx, http.MethodGet, "/documents", nil, &left, http.StatusOK); err != nil {
		return err
	}
	for _, document := range left {
		if slices.Contains(ids, document.ID) {
			return fmt.Errorf("document %s is still there after its DELETE was acknowledged", document.ID)
		}
	}
	return nil
}

type daserDocument struct {
	ID string `json:"doc_id"`
}

// A chunkClient asks about documents that were uploaded, through DaseR's
// /infer; a prompt without documents goes to the engine.
type chunkClient struct {
	daser
	engine      *openai.Client
	infer       *openai.Client
	concurrency int
}

// Do sends a request and reads the stream, an extension of the miniature
// server: TTFT is the client's, as in every other row.
func (c *chunkClient) Do(ctx context.Context, r row.Request) row.Timeline {
	if r.Parts == nil {
		return c.engine.Do(ctx, r)
	}
	parameters := map[string]any{
		"max_tokens": r.MaxTokens, "temperature": r.Temperature, "seed": r.Seed, "ignore_eos": r.IgnoreEOS, "return_token_ids": true,
	}
	if r.TopP > 0 {
		parameters["top_p"] = r.TopP
	}
	if r.Logprobs > 0 {
		parameters["logprobs"] = r.Logprobs
	}
	return c.infer.Stream(ctx, "/infer", r.ID, map[string]any{
		"doc_ids": c.own.named(r.Parts.Documents), "task_token_ids": r.Parts.Question, "prefix_token_ids": []int32{},
		"use_kv_cache": !r.SkipReuse, "trace_cache": false, "stream": true, "gen_params": parameters,
	})
}

// upload stores every document of the requests once, as many at a time as
// requests may be in flight, and waits until all can be read.
func (c *chunkClient) upload(ctx context.Context, requests []row.Request) (row.Upload, error) {
	start := time.Now()
	texts := make(map[string][]int32)
	var order []string
	for _, r := range requests {
		if r.Parts == nil {
			continue
		}
		for _, tokens := range r.Parts.Documents {
			key := documentKey(tokens)
			if texts[key] == nil {
				texts[key] = tokens
				order = append(order, key)
			}
		}
	}
	group, uploading := errgroup.WithContext(ctx)
	group.SetLimit(c.concurrency)
	for i, key := range order {
		group.Go(func() error {
			var stored daserDocument
			body := map[string]any{"title": fmt.Sprintf("doc_%d", i), "token_ids": texts[key]}
			if err := c.call(uploading, http.MethodPost, "/documents", body, &stored, http.StatusCreated); err != nil {
				return fmt.Errorf("uploading document %d of %d: %w", i+1, len(order), err)
			}
			c.own.add(key, stored.ID)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return row.Upload{}, err
	}
	if err := c.drain(ctx); err != nil {
		return row.Upload{}, err
	}
	return row.Upload{Documents: len(order), Took: time.Since(start)}, nil
}

// takesTokens says why the server cannot be asked about documents by token ids,
// which is how the suite knows what was asked: that is the miniature server's own,
// as the stream of its /infer is.
func (d daser) takesTokens(ctx context.Context, tokens []int32) error {
	var stored daserDocument
	err := d.call(ctx, http.MethodPost, "/documents", map[string]any{"title": "kvproof", "token_ids": tokens}, &stored, http.StatusCreated)
	var refused answered
	switch {
	case errors.As(err, &refused) && refused.status >= 400 && refused.status < 500:
		return fmt.Errorf("this DaseR takes documents as texts alone, and its /infer tells neither token ids nor when they came; row daser-prefix can be measured: %w", err)
	case err != nil:
		return fmt.Errorf("uploading a document by token ids: %w", err)
	}
	return d.call(ctx, http.MethodDelete, "/documents/"+stored.ID, nil, nil, http.StatusOK)
}

// documentKey is a document's tokens as a map key.
func documentKey(tokens []int32) string {
	key := make([]byte, 0, 4*len(tokens))
	for _, token := range tokens {
		key = binary.LittleEndian.AppendUint32(key, uint32(token))
	}
	return string(key)
}
