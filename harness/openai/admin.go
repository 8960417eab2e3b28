package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// A Model is an entry of /v1/models.
type Model struct {
	ID          string `json:"id"`            // the name to ask for
	Root        string `json:"root"`          // what was loaded
	MaxModelLen int    `json:"max_model_len"` // context in tokens; 0: not said
}

// Models lists what the server serves.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var answer struct {
		Data []Model `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, "/v1/models", nil, &answer); err != nil {
		return nil, err
	}
	return answer.Data, nil
}

// Version is the server's own version.
func (c *Client) Version(ctx context.Context) (string, error) {
	var answer struct {
		Version string `json:"version"`
	}
	if err := c.call(ctx, http.MethodGet, "/version", nil, &answer); err != nil {
		return "", err
	}
	if answer.Version == "" {
		return "", errors.New("GET /version names no version")
	}
	return answer.Version, nil
}

// Health is nil if the engine lives. It says nothing about a KV backend
// (vLLM 0.32.0 stays healthy without one).
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/health", nil, nil)
}

// A Tokenized is the server's own view of a text.
type Tokenized struct {
	Count       int     `json:"count"`
	MaxModelLen int     `json:"max_model_len"` // 0: not said
	Tokens      []int32 `json:"tokens"`
}

// Tokenize asks for the ids of a text, with or without the special tokens
// that a text prompt would get.
func (c *Client) Tokenize(ctx context.Context, text string, special bool) (Tokenized, error) {
	return c.tokenize(ctx, map[string]any{"model": c.model, "prompt": text, "add_special_tokens": special})
}

// TokenizeChat asks for the ids of a conversation by the model's chat template,
// up to where the answer begins. A model that can think aloud is told not to.
func (c *Client) TokenizeChat(ctx context.Context, messages []Message) (Tokenized, error) {
	return c.tokenize(ctx, map[string]any{
		"model": c.model, "messages": messages, "add_generation_prompt": true,
		"chat_template_kwargs": map[string]any{"enable_thinking": false},
	})
}

func (c *Client) tokenize(ctx context.Context, body map[string]any) (Tokenized, error) {
	var answer Tokenized
	err := c.call(ctx, http.MethodPost, "/tokenize", body, &answer)
	if err == nil && answer.Count != len(answer.Tokens) {
		err = fmt.Errorf("POST /tokenize counts %d tokens and lists %d", answer.Count, len(answer.Tokens))
	}
	return answer, err
}

// What ResetPrefixCache may find, beside errors of HTTP.
var (
	// ErrResetRefused: the server answered 200 and {"success":false}, as vLLM
	// 0.32.0 does while a request runs. Try again once nothing does.
	ErrResetRefused = errors.New("the server did not reset its prefix cache")
	// ErrResetUnknown: the server answered 200 without saying whether it did
	// anything, as vLLM before about 0.26 does. Only counters can tell.
	ErrResetUnknown = errors.New("the server does not say whether it reset its prefix cache")
)

// ResetPrefixCache empties the engine's own prefix cache and, with external,
// asks the connector's tier for the same. A nil error is the server's word,
// not a proof: ExampleConnector says true and keeps its files (vLLM 0.32.0).
func (c *Client) ResetPrefixCache(ctx context.Context, external bool) error {
	path := "/reset_prefix_cache?reset_external=" + strconv.FormatBool(external)
	body, err := c.body(ctx, http.MethodPost, path, nil)
	if err != nil {
		return err
	}
	var answer struct {
		Success *bool `json:"success"`
	}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("decoding the answer of POST %s: %w: %s", path, err, c.secrets.hide(string(body)))
		}
	}
	switch {
	case answer.Success == nil:
		return fmt.Errorf("POST %s: %w", path, ErrResetUnknown)
	case !*answer.Success:
		return fmt.Errorf("POST %s: %w", path, ErrResetRefused)
	}
	return nil
}

// call makes an admin call and decodes its JSON answer into out; nil: the
// body does not matter.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := c.body(ctx, method, path, in)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decoding the answer of %s %s: %w: %s", method, path, err, c.secrets.hide(string(body)))
	}
	return nil
}

// body is the body of a 200 answer, any other answer is a *ServerError. Admin
// calls have the stall deadline too: a dead backend makes a reset hang.
func (c *Client) body(parent context.Context, method, path string, in any) ([]byte, error) {
	ctx, dog := newWatchdog(parent, c.connect, c.stall)
	defer dog.stop()
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return nil, c.hidden(err)
	}
	res, err := c.admin.Do(req)
	if err != nil {
		return nil, c.hidden(sending(req, cause(ctx, err)))
	}
	defer res.Body.Close()
	dog.alive()
	source := watched{Reader: res.Body, dog: dog}
	if res.StatusCode != http.StatusOK {
		said, _ := readError(res.StatusCode, source) // the status is what counts
		said.Message, said.Type = c.secrets.hide(said.Message), c.secrets.hide(said.Type)
		return nil, fmt.Errorf("%s %s: %w", method, path, said)
	}
	text, err := io.ReadAll(source)
	if err != nil {
		return nil, c.hidden(fmt.Errorf("reading the answer of %s %s: %w", method, path, cause(ctx, err)))
	}
	return text, nil
}

// cause is why a context ended, or err if it did not.
func cause(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

// hidden gives up the chain of an error only where its text holds a secret.
func (c *Client) hidden(err error) error {
	if text := c.secrets.hide(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
