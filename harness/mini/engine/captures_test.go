package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// volatile are the members whose values depend on the moment or on the weights;
// of them only the kind must be that of the capture.
var volatile = []string{
	"id", "created", "text", "content", "tokens", "token_logprobs", "top_logprobs", "text_offset", "token_ids",
	"system_fingerprint", "model", "root", "version",
}

// outline writes JSON with its keys in their order; values that are volatile
// as their kind, all others as they are.
func outline(t *testing.T, payload string, keep ...string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(payload))
	d.UseNumber()
	var b strings.Builder
	outlineValue(t, d, &b, false, keep)
	return b.String()
}

func outlineValue(t *testing.T, d *json.Decoder, b *strings.Builder, kind bool, keep []string) {
	t.Helper()
	token, err := d.Token()
	require.NoError(t, err)
	switch v := token.(type) {
	case json.Delim:
		b.WriteString(v.String())
		for d.More() {
			inner := kind
			if v == '{' {
				name, err := d.Token()
				require.NoError(t, err)
				key := name.(string)
				if kind {
					key = "token" // top_logprobs has tokens as keys
				}
				inner = kind || slices.Contains(volatile, key) && !slices.Contains(keep, key)
				fmt.Fprintf(b, "%q:", key)
			}
			outlineValue(t, d, b, inner, keep)
			b.WriteString(",")
		}
		end, err := d.Token()
		require.NoError(t, err)
		b.WriteString(end.(json.Delim).String())
	case nil:
		b.WriteString("null")
	default:
		if !kind {
			fmt.Fprintf(b, "%v", v)
			return
		}
		fmt.Fprintf(b, "<%T>", v)
	}
}

// capturedPrompt is the prompt of a captured stream.
func capturedPrompt(t *testing.T, name string) []int32 {
	t.Helper()
	var chunk struct {
		Choices []struct {
			PromptTokenIDs []int32 `json:"prompt_token_ids"`
		} `json:"choices"`
	}
	require.NoError(t, json.Unmarshal([]byte(events(t, bytes.NewReader(testdata(t, name)))[0]), &chunk))
	require.NotEmpty(t, chunk.Choices[0].PromptTokenIDs)
	return chunk.Choices[0].PromptTokenIDs
}

func capturedEngine(t *testing.T, change func(*Config)) *Engine {
	t.Helper()
	return newEngine(t, func(c *Config) {
		c.Model, c.BlockSize, c.PrefixCaching = captured(), 32, true
		if change != nil {
			change(c)
		}
	})
}

// The same request gives a stream of the same events: keys in their order,
// kinds, and all values that do not come from the weights.
func TestStreamsLookAsCaptured(t *testing.T) {
	ids := capturedPrompt(t, "completions-stream-cold.sse")
	stream := object{"model": "tiny", "prompt": ids, "max_tokens": 6, "temperature": 0, "ignore_eos": true, "stream": true}
	usage := object{"stream_options": object{"include_usage": true}}
	full := stream.with(usage).with(object{"logprobs": 2, "return_token_ids": true})
	for _, c := range []struct {
		file, path string
		body       object
		warm       bool
	}{
		{"completions-stream-cold.sse", "/v1/completions", full, false},
		{"completions-stream-warm.sse", "/v1/completions", full, true},
		{"completions-stream-plain.sse", "/v1/completions", stream.with(usage), true},
		{"completions-stream-continuous-usage.sse", "/v1/completions", stream.with(object{
			"max_tokens": 3, "return_token_ids": true, "stream_options": object{"include_usage": true, "continuous_usage_stats": true},
		}), true},
		{"chat-stream.sse", "/v1/chat/completions", object{
			"model": "tiny", "messages": []object{{"role": "user", "content": "w10 w11 w12"}}, "max_tokens": 4, "ignore_eos": true,
			"temperature": 0, "stream": true, "stream_options": object{"include_usage": true}, "return_token_ids": true,
		}, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			e := capturedEngine(t, nil)
			if c.warm {
				post(t, e, c.path, c.body)
			}
			w := post(t, e, c.path, c.body)
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
			requireSameEvents(t, testdata(t, c.file), w.Body.Bytes())
		})
	}
}

func requireSameEvents(t *testing.T, want, got []byte, keep ...string) {
	t.Helper()
	wantEvents, gotEvents := events(t, bytes.NewReader(want)), events(t, bytes.NewReader(got))
	require.Len(t, gotEvents, len(wantEvents))
	for i := range wantEvents {
		if wantEvents[i] == "[DONE]" {
			require.Equal(t, "[DONE]", gotEvents[i])
			continue
		}
		require.Equal(t, outline(t, wantEvents[i], keep...), outline(t, gotEvents[i], keep...), "event %d", i)
	}
	require.True(t, bytes.HasSuffix(got, []byte("data: [DONE]\n\n")))
}

// Offsets count the characters of the tokens, not of the text.
func TestTextOffsetsAddUp(t *testing.T) {
	w := post(t, capturedEngine(t, nil), "/v1/completions", ask(prompt(1, 9)))
	at := 0
	for _, payload := range events(t, w.Body) {
		var chunk struct {
			Choices []struct {
				Logprobs completionLogprobsWire `json:"logprobs"`
			} `json:"choices"`
		}
		if payload == "[DONE]" || json.Unmarshal([]byte(payload), &chunk) != nil || len(chunk.Choices) == 0 {
			continue
		}
		lp := chunk.Choices[0].Logprobs
		require.Equal(t, []int{at}, lp.TextOffset)
		at += len(lp.Tokens[0])
		require.Len(t, lp.TopLogprobs[0], 3)
		require.InDelta(t, lp.TokenLogprobs[0], lp.TopLogprobs[0][lp.Tokens[0]], 0, "greedy: the token is the best one")
	}
	require.Positive(t, at)
}

type completionLogprobsWire struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
}

func TestAnswersLookAsCaptured(t *testing.T) {
	ids := capturedPrompt(t, "completions-stream-cold.sse")
	e := capturedEngine(t, nil)
	body := object{"model": "tiny", "prompt": ids, "max_tokens": 6, "temperature": 0, "ignore_eos": true, "return_token_ids": true}
	post(t, e, "/v1/completions", body)
	w := post(t, e, "/v1/completions", body)
	require.Equal(t, outline(t, string(testdata(t, "completions-nonstream.json"))), outline(t, w.Body.String()))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))

	for name, path := range map[string]string{"models.json": "/v1/models", "version.json": "/version"} {
		w := do(t, e, http.MethodGet, path, "")
		require.Equal(t, outline(t, string(testdata(t, name))), outline(t, w.Body.String()), name)
	}
}

// Errors are those of the capture byte for byte.
func TestErrorsAreAsCaptured(t *testing.T) {
	one := object{"model": "tiny", "prompt": []int32{10}, "max_tokens": 1}
	tokens := func(n int) object { return object{"prompt": prompt(3, n)} }
	for name, body := range map[string]any{
		"err-bad-salt":               one.with(object{"cache_salt": ""}),
		"err-bad-type":               one.with(object{"max_tokens": "x"}),
		"err-empty-prompt":           one.with(object{"prompt": []int32{}}),
		"err-logprobs-too-many":      one.with(object{"logprobs": 99}),
		"err-malformed-json":         `{"model": "tiny", "prompt": "w1"`,
		"err-negative-max-tokens":    one.with(object{"max_tokens": -1}),
		"err-prompt-exactly-max-len": one.with(tokens(4096)),
		"err-salt-slash":             one.with(object{"cache_salt": "a/b"}),
		"err-stream-prompt-logprobs": one.with(object{"stream": true, "prompt_logprobs": 1}),
		"err-stream-too-long":        one.with(tokens(5000)).with(object{"stream": true}),
		"err-token-out-of-vocab":     one.with(object{"prompt": []int{999999}}),
		"err-too-long":               one.with(tokens(5000)),
		"err-unknown-model":          one.with(object{"model": "nope"}),
		"err-not-found":              nil,
		"err-priority":               one.with(object{"priority": 7}),
		"ok-unknown-field":           one.with(object{"no_such_field": object{"a": 1}}),
		"err-prompt-plus-output-too-long": one.with(tokens(4000)).with(object{
			"max_tokens": 200, "ignore_eos": true,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			e := capturedEngine(t, nil)
			var w *httptest.ResponseRecorder
			switch body := body.(type) {
			case object:
				w = post(t, e, "/v1/completions", body)
			case string:
				w = do(t, e, http.MethodPost, "/v1/completions", body)
			default:
				w = do(t, e, http.MethodGet, "/no/such/path", "")
			}
			head, want, ok := strings.Cut(string(testdata(t, name+".http")), "\n\n")
			require.True(t, ok)
			require.Equal(t, head, fmt.Sprintf("HTTP %d\ncontent-type: %s", w.Code, w.Header().Get("Content-Type")))
			want = strings.TrimSuffix(want, "\n")
			if w.Code == http.StatusOK {
				require.Equal(t, outline(t, want), outline(t, w.Body.String()))
				return
			}
			require.Equal(t, want, w.Body.String())
		})
	}
}

func TestOtherMethodsAndTypes(t *testing.T) {
	e := newEngine(t, nil)
	w := do(t, e, http.MethodGet, "/v1/completions", "")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.JSONEq(t, `{"detail":"Method Not Allowed"}`, w.Body.String())
	require.Equal(t, http.MethodPost, w.Header().Get("Allow"))

	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "text/plain")
	rec := httptest.NewRecorder()
	e.Handler().ServeHTTP(rec, r)
	require.Equal(t, http.StatusBadRequest, rec.Code)
	require.Contains(t, rec.Body.String(), "application/json")
}

// KV that is not a number gives what vLLM gave: HTTP 200, ordinary usage,
// token 0 and null logprobs.
func TestNaNLooksAsCaptured(t *testing.T) {
	ids := capturedPrompt(t, "kvfile-warm-nan.sse")
	store := newMemStore(32, 32)
	e := capturedEngine(t, func(c *Config) { c.Store, c.PrefixCaching = store, false })
	body := ask(ids).with(object{"max_tokens": 4, "logprobs": 2})
	cold := complete(t, e, body)
	require.NotContains(t, cold.logprobs, nil)

	store.loaded = func(dst [][]float32) error { dst[0][0] = float32(math.NaN()); return nil }
	w := post(t, e, "/v1/completions", body)
	requireSameEvents(t, testdata(t, "kvfile-warm-nan.sse"), w.Body.Bytes(), "text", "tokens", "token_logprobs", "text_offset", "token_ids")
	require.Contains(t, w.Body.String(), `"top_logprobs":[{"<pad>":null,"<s>":null}]`)
}
