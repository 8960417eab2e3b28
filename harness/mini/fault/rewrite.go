package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// rewrite changes the request before the engine sees it. A body that is no
// JSON object goes on as it is: the engine has its own words for it.
func (i *Injector) rewrite(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		if i.Has(ShortOutput) {
			halve(fields)
		}
		if i.Has(DroppedPrompt) {
			shorten(fields)
		}
		if body, err = json.Marshal(fields); err != nil {
			return fmt.Errorf("writing the request: %w", err)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil
}

// halve halves the limits on the output, to one token at least. vLLM's default
// is 16 tokens.
func halve(fields map[string]json.RawMessage) {
	if fields["max_tokens"] == nil && fields["max_completion_tokens"] == nil {
		fields["max_tokens"] = json.RawMessage("16")
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "min_tokens"} {
		var n int
		if json.Unmarshal(fields[name], &n) == nil && n > 1 {
			fields[name] = json.RawMessage(fmt.Sprint(n / 2))
		}
	}
}

// shorten takes the last token, or word, off the prompt, unless it is the only
// one. Prompts in lists of lists and chats are left alone.
func shorten(fields map[string]json.RawMessage) {
	var ids []int64
	if json.Unmarshal(fields["prompt"], &ids) == nil && len(ids) > 1 {
		set(fields, "prompt", ids[:len(ids)-1])
		return
	}
	var text string
	if json.Unmarshal(fields["prompt"], &text) == nil {
		if at := strings.LastIndexByte(strings.TrimSpace(text), ' '); at > 0 {
			set(fields, "prompt", text[:at])
		}
	}
}

// set keeps the field as it was where the value has no JSON, which integers
// and strings always have.
func set(fields map[string]json.RawMessage, name string, value any) {
	if data, err := json.Marshal(value); err == nil {
		fields[name] = data
	}
}
