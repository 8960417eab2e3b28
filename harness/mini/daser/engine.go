package daser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// An engineClient speaks to the engine as any client of it does, over HTTP.
type engineClient struct {
	url   string
	model string // name of the served model, read at the start
	http  *http.Client
}

func newEngineClient(url string) *engineClient {
	return &engineClient{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

func (c *engineClient) close() { c.http.CloseIdleConnections() }

// healthy says whether the engine answers 200 on /health.
func (c *engineClient) healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/health", nil)
	if err != nil {
		return false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// findModel reads the name of the first model that is served.
func (c *engineClient) findModel(ctx context.Context) error {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return err
	}
	if len(list.Data) == 0 {
		return fmt.Errorf("the engine at %s serves no model", c.url)
	}
	c.model = list.Data[0].ID
	return nil
}

// tokenize turns text into token ids.
func (c *engineClient) tokenize(ctx context.Context, text string) ([]int32, error) {
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	err := c.call(ctx, http.MethodPost, "/tokenize", map[string]any{"prompt": text}, &answer)
	return answer.Tokens, err
}

func (c *engineClient) detokenize(ctx context.Context, ids []int32) (string, error) {
	var answer struct {
		Prompt string `json:"prompt"`
	}
	err := c.call(ctx, http.MethodPost, "/detokenize", map[string]any{"tokens": ids}, &answer)
	return answer.Prompt, err
}

// prefill has the engine compute ids alone from position 0, whatever is
// stored, and publish them.
func (c *engineClient) prefill(ctx context.Context, ids []int32) error {
	return c.call(ctx, http.MethodPost, "/v1/completions", map[string]any{
		"model": c.model, "prompt": ids, "max_tokens": 1, "temperature": 0,
		"kv_transfer_params": map[string]bool{"daser_skip_load": true},
	}, nil)
}

// call sends body and reads the answer into into, where that is not nil.
func (c *engineClient) call(ctx context.Context, method, path string, body, into any) error {
	response, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return nil
}

// send returns an answer with HTTP 200, whose body the caller closes.
func (c *engineClient) send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing a request for %s: %w", path, err)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("asking the engine for %s: %w", path, err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the engine for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		start, _ := io.ReadAll(io.LimitReader(response.Body, 400))
		_ = response.Body.Close()
		return nil, fmt.Errorf("asking the engine for %s: status %d: %s", path, response.StatusCode, start)
	}
	return response, nil
}
