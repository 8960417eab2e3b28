package engine

import (
	"encoding/json"
	"net/http"

	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// completions answers POST /v1/completions.
func (e *Engine) completions(w http.ResponseWriter, r *http.Request) {
	f, refused := readFields(r)
	if refused != nil {
		writeError(w, refused)
		return
	}
	p := e.readParams(f)
	if n, ok := f.integer("logprobs"); ok {
		p.readLogprobs(f, "logprobs", n)
	}
	p.maxTokens = defaultMaxTokens
	p.readMaxTokens(f, "max_tokens")
	prompts := e.readPrompts(f)
	if f.err != nil {
		writeError(w, f.err)
		return
	}
	q, refused := e.newRequest(r, "cmpl-", p, prompts)
	if refused != nil {
		writeError(w, refused)
		return
	}
	e.answer(w, r, q, &completionShape{
		head: completionHead{q.id, "text_completion", q.created, e.config.ModelName}, request: q,
		tok: e.tokenizer, fingerprint: e.fingerprint, offsets: make([]int, len(prompts)), begun: make([]bool, len(prompts)),
	})
}

// readPrompts reads a string, strings, ids or lists of ids.
func (e *Engine) readPrompts(f *fields) [][]int32 {
	raw := f.get("prompt")
	var (
		texts []string
		ids   []int32
		lists [][]int32
	)
	if one, ok := unquote(raw); ok {
		return [][]int32{e.tokenizer.Encode(one)}
	}
	switch {
	case raw == nil || string(raw) == "[]":
		return nil
	case json.Unmarshal(raw, &texts) == nil:
		for _, t := range texts {
			lists = append(lists, e.tokenizer.Encode(t))
		}
		return lists
	case json.Unmarshal(raw, &ids) == nil:
		return [][]int32{ids}
	case f.into("prompt", "string, list of strings, list of token ids or list of those", &lists):
		return lists
	}
	return nil
}

// A completionShape writes text completions.
type completionShape struct {
	head        completionHead
	request     *request
	tok         *tokenizer.Tokenizer
	fingerprint string
	offsets     []int  // per prompt: length of its tokens so far, as text_offset counts
	begun       []bool // per prompt: its first chunk, which carries the prompt's ids, is out
}

type completionHead struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

type completionChunk struct {
	completionHead
	Choices []completionDelta `json:"choices"`
	Usage   any               `json:"usage,omitempty"`
	// On the usage event only.
	SystemFingerprint string `json:"system_fingerprint,omitempty"`
}

type completionDelta struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason"`
	PromptTokenIDs []int32             `json:"prompt_token_ids"`
	TokenIDs       []int32             `json:"token_ids"`
}

func (c *completionShape) chunks(o output, counts *tokenCounts) []any {
	d := completionDelta{Index: o.prompt, Text: o.text, FinishReason: reason(o.finish), StopReason: o.stop}
	if c.request.returnTokenIDs {
		d.TokenIDs = []int32{o.token}
		if !c.begun[o.prompt] {
			d.PromptTokenIDs = c.request.sequences[o.prompt].prompt
		}
	}
	c.begun[o.prompt] = true
	if o.logprob != nil {
		d.Logprobs = c.logprobs(o.prompt, []int32{o.token}, []*tokenLogprob{o.logprob})
	}
	return []any{completionChunk{completionHead: c.head, Choices: []completionDelta{d}, Usage: optional(counts)}}
}

func (c *completionShape) usage(counts tokenCounts, cached int) any {
	type details struct {
		CachedTokens int `json:"cached_tokens"`
	}
	return completionChunk{
		completionHead: c.head, Choices: []completionDelta{},
		Usage: streamUsage{counts, details{cached}}, SystemFingerprint: c.fingerprint,
	}
}

type completionAnswer struct {
	completionHead
	Choices           []completionChoice `json:"choices"`
	ServiceTier       *string            `json:"service_tier"`
	SystemFingerprint string             `json:"system_fingerprint"`
	Usage             wholeUsage         `json:"usage"`
	KVTransferParams  *struct{}          `json:"kv_transfer_params"`
	ECTransferParams  *struct{}          `json:"ec_transfer_params"`
	Metrics           *struct{}          `json:"metrics"`
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   string              `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason"`
	TokenIDs       []int32             `json:"token_ids"`
	PromptLogprobs *struct{}           `json:"prompt_logprobs"`
	PromptTokenIDs []int32             `json:"prompt_token_ids"`
	RoutedExperts  *struct{}           `json:"routed_experts"`
}

func (c *completionShape) whole(answers []completed, counts tokenCounts, cached int) any {
	out := completionAnswer{
		completionHead: c.head, Choices: []completionChoice{}, SystemFingerprint: c.fingerprint,
		Usage: wholeUsage{tokenCounts: counts, Details: wholeDetails{CachedTokens: cached}},
	}
	for i, a := range answers {
		choice := completionChoice{Index: i, Text: a.text, FinishReason: a.finish, StopReason: a.stop}
		if len(a.logprobs) > 0 {
			choice.Logprobs = c.logprobs(i, a.tokens, a.logprobs)
		}
		if c.request.returnTokenIDs {
			choice.TokenIDs, choice.PromptTokenIDs = a.tokens, c.request.sequences[i].prompt
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

// reason is null while a sequence runs.
func reason(finish string) *string {
	if finish == "" {
		return nil
	}
	return &finish
}
