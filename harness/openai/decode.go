package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// A payload is the JSON of one event, of either route. The shapes are those
// of vLLM 0.32.0; fields that other servers name differently stand beside
// them.
type payload struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
}

type choice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`  // completions
	Delta        delta     `json:"delta"` // chat
	Logprobs     *logprobs `json:"logprobs"`
	TokenIDs     []int32   `json:"token_ids"`
	PromptIDs    []int32   `json:"prompt_token_ids"` // of the first chunk
	FinishReason string    `json:"finish_reason"`
}

type delta struct {
	Content          string     `json:"content"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"` // the newer name of the same
	ToolCalls        []toolCall `json:"tool_calls"`
}

type toolCall struct {
	Index    int `json:"index"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens     *int `json:"prompt_tokens"`
	CompletionTokens *int `json:"completion_tokens"`
	Details          *struct {
		CachedTokens *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// logprobs holds both shapes: parallel lists (completions) and a list of
// tokens (chat).
type logprobs struct {
	TokenLogprobs []*float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]*float64 `json:"top_logprobs"`
	Content       []struct {
		ID          *int32   `json:"id"` // llama.cpp's, of the token
		Logprob     *float64 `json:"logprob"`
		TopLogprobs []struct {
			Logprob *float64 `json:"logprob"`
		} `json:"top_logprobs"`
	} `json:"content"`
}

// decode reads one event; what it returns is valid until fast reads another.
// An error answer comes as a *ServerError; any other
// error means that the bytes are not the protocol.
func decode(event Event, fast *fastReader) (payload, error) {
	if event.Name == "error" {
		return payload{}, parseError(0, event.Data)
	}
	p, ok := fast.read(event.Data)
	if !ok {
		p = payload{}
		if err := json.Unmarshal(event.Data, &p); err != nil {
			return payload{}, err
		}
	}
	if (len(p.Error) > 0 && !bytes.Equal(p.Error, []byte("null"))) || p.Object == "error" {
		return payload{}, parseError(0, event.Data)
	}
	for _, c := range p.Choices {
		if c.Index != 0 {
			return payload{}, fmt.Errorf("choice %d, though one was asked for", c.Index)
		}
		for _, call := range c.Delta.ToolCalls {
			if call.Index < 0 || call.Index >= maxToolCalls {
				return payload{}, fmt.Errorf("tool call %d, want 0 to %d", call.Index, maxToolCalls-1)
			}
		}
	}
	return p, p.Usage.check()
}

// maxToolCalls bounds what an index in a stream can make us hold.
const maxToolCalls = 1024

func (u *usage) check() error {
	if u == nil {
		return nil
	}
	for _, n := range []*int{u.PromptTokens, u.CompletionTokens, u.cached()} {
		if n != nil && *n < 0 {
			return fmt.Errorf("usage counts %d tokens", *n)
		}
	}
	return nil
}

func (u *usage) cached() *int {
	if u.Details == nil {
		return nil
	}
	return u.Details.CachedTokens
}

// tokens are the logprobs as one list, NaN for null.
func (l *logprobs) tokens() []row.TokenLogprob {
	if l == nil {
		return nil
	}
	var out []row.TokenLogprob
	for i, value := range l.TokenLogprobs {
		token := row.TokenLogprob{Logprob: orNaN(value)}
		if i < len(l.TopLogprobs) {
			for _, top := range l.TopLogprobs[i] {
				token.Top = append(token.Top, orNaN(top))
			}
		}
		out = append(out, token)
	}
	for _, value := range l.Content {
		token := row.TokenLogprob{Logprob: orNaN(value.Logprob)}
		for _, top := range value.TopLogprobs {
			token.Top = append(token.Top, orNaN(top.Logprob))
		}
		out = append(out, token)
	}
	for _, token := range out {
		slices.SortFunc(token.Top, bestFirst)
	}
	return out
}

// ids are the token ids that stand beside logprobs where a server has no other
// place for them, as llama.cpp's has not; nil unless every token has one.
func (l *logprobs) ids() []int32 {
	if l == nil {
		return nil
	}
	ids := make([]int32, 0, len(l.Content))
	for _, token := range l.Content {
		if token.ID == nil {
			return nil
		}
		ids = append(ids, *token.ID)
	}
	return ids
}

func orNaN(value *float64) float64 {
	if value == nil {
		return math.NaN()
	}
	return *value
}

// bestFirst sorts downwards, NaN last.
func bestFirst(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a) || a < b:
		return 1
	case math.IsNaN(b) || a > b:
		return -1
	}
	return 0
}

// carriesToken tells output from a role, an empty delta or a bare finish
// reason. Ids without text count: a token may decode to nothing yet.
func (c choice) carriesToken() bool {
	return len(c.TokenIDs) > 0 || c.Text != "" || c.Delta.Content != "" || c.Delta.reasoning() != "" ||
		len(c.Delta.ToolCalls) > 0 || (c.Logprobs != nil && len(c.Logprobs.TokenLogprobs)+len(c.Logprobs.Content) > 0)
}

func (d delta) reasoning() string {
	if d.ReasoningContent != "" {
		return d.ReasoningContent
	}
	return d.Reasoning
}
