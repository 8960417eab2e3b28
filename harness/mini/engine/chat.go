package engine

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// chat answers POST /v1/chat/completions.
func (e *Engine) chat(w http.ResponseWriter, r *http.Request) {
	f, refused := readFields(r)
	if refused != nil {
		writeError(w, refused)
		return
	}
	p := e.readParams(f)
	if on, _ := f.boolean("logprobs"); on {
		n, _ := f.integer("top_logprobs")
		p.readLogprobs(f, "top_logprobs", n)
	}
	p.maxTokens = unlimited
	p.readMaxTokens(f, "max_tokens") // the older name
	p.readMaxTokens(f, "max_completion_tokens")
	messages := readMessages(f)
	if f.err != nil {
		writeError(w, f.err)
		return
	}
	q, refused := e.newRequest(r, "chatcmpl-", p, [][]int32{e.tokenizer.Encode(tokenizer.Chat(messages, true))})
	if refused != nil {
		writeError(w, refused)
		return
	}
	e.answer(w, r, q, &chatShape{id: q.id, created: q.created, model: e.config.ModelName, request: q, tok: e.tokenizer, fingerprint: e.fingerprint})
}

// readMessages reads a conversation; the content of a message is a string or a
// list of text parts.
func readMessages(f *fields) []tokenizer.Message {
	var raw []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if !f.into("messages", "list of messages", &raw) {
		f.missing("messages")
		return nil
	}
	var messages []tokenizer.Message
	for _, m := range raw {
		content, err := readContent(m.Content)
		if err != nil {
			f.fail(err)
		}
		messages = append(messages, tokenizer.Message{Role: m.Role, Content: content})
	}
	if len(messages) == 0 {
		f.fail(badParam("messages", nil, "You must pass at least one message."))
	}
	return messages
}

func readContent(raw json.RawMessage) (string, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if text, ok := unquote(raw); ok {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", badParam("messages", nil, "The content of a message must be a string or a list of parts.")
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", badParam("messages", nil, "Parts of type %q are not supported: this model reads text.", p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// A chatShape writes chat completions.
type chatShape struct {
	id          string
	created     int64
	model       string
	request     *request
	tok         *tokenizer.Tokenizer
	fingerprint string
	begun       bool // the role is out
}

type chatHead struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices any    `json:"choices"`
	Usage   any    `json:"usage,omitempty"`
	// On the usage event only.
	SystemFingerprint string `json:"system_fingerprint,omitempty"`
}

func (c *chatShape) chunk(choices, usage any) chatHead {
	return chatHead{ID: c.id, Object: "chat.completion.chunk", Created: c.created, Model: c.model, Choices: choices, Usage: usage}
}

// chatRole is the first event: it comes with the first token and carries none.
type chatRole struct {
	chatHead
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	PromptText     *string `json:"prompt_text"`
}

type chatRoleChoice struct {
	Index        int           `json:"index"`
	Delta        roleDelta     `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type roleDelta struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type contentDelta struct {
	Content string `json:"content"`
}

type chatDelta struct {
	Index        int           `json:"index"`
	Delta        contentDelta  `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	// With the finish reason only.
	StopReason json.RawMessage `json:"stop_reason,omitempty"`
	TokenIDs   []int32         `json:"token_ids"`
}

func (c *chatShape) chunks(o output, counts *tokenCounts) []any {
	var events []any
	if !c.begun {
		c.begun = true
		events = append(events, c.role(counts))
	}
	d := chatDelta{Delta: contentDelta{o.text}, FinishReason: reason(o.finish)}
	if c.request.returnTokenIDs {
		d.TokenIDs = []int32{o.token}
	}
	if o.finish != "" {
		d.StopReason, _ = encode(o.stop) // a string, an id or null
	}
	if o.logprob != nil {
		d.Logprobs = chatLogprobsOf(c.tok, []int32{o.token}, []*tokenLogprob{o.logprob})
	}
	return append(events, c.chunk([]chatDelta{d}, optional(counts)))
}

func (c *chatShape) role(counts *tokenCounts) chatRole {
	var usage any
	if counts != nil {
		usage = countTokens(counts.Prompt, 0)
	}
	role := chatRole{chatHead: c.chunk([]chatRoleChoice{{Delta: roleDelta{Role: "assistant"}}}, usage)}
	if c.request.returnTokenIDs {
		role.PromptTokenIDs = c.request.sequences[0].prompt
	}
	return role
}

func (c *chatShape) usage(counts tokenCounts, cached int) any {
	type details struct {
		CachedTokens       int `json:"cached_tokens"`
		CreatedCacheTokens int `json:"created_cache_tokens"`
	}
	chunk := c.chunk([]chatDelta{}, streamUsage{counts, details{CachedTokens: cached}})
	chunk.SystemFingerprint = c.fingerprint
	return chunk
}

type chatAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	ServiceTier       *string      `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Usage             wholeUsage   `json:"usage"`
	PromptLogprobs    *struct{}    `json:"prompt_logprobs"`
	PromptTokenIDs    []int32      `json:"prompt_token_ids"`
	PromptText        *string      `json:"prompt_text"`
	KVTransferParams  *struct{}    `json:"kv_transfer_params"`
	ECTransferParams  *struct{}    `json:"ec_transfer_params"`
	Metrics           *struct{}    `json:"metrics"`
}

type chatChoice struct {
	Index         int           `json:"index"`
	Message       chatMessage   `json:"message"`
	Logprobs      *chatLogprobs `json:"logprobs"`
	FinishReason  string        `json:"finish_reason"`
	StopReason    any           `json:"stop_reason"`
	TokenIDs      []int32       `json:"token_ids"`
	RoutedExperts *struct{}     `json:"routed_experts"`
}

type chatMessage struct {
	Role         string     `json:"role"`
	Content      string     `json:"content"`
	Refusal      *string    `json:"refusal"`
	Annotations  *struct{}  `json:"annotations"`
	Audio        *struct{}  `json:"audio"`
	FunctionCall *struct{}  `json:"function_call"`
	ToolCalls    []struct{} `json:"tool_calls"`
	Reasoning    *string    `json:"reasoning"`
}

func (c *chatShape) whole(answers []completed, counts tokenCounts, cached int) any {
	a, none := answers[0], 0
	choice := chatChoice{
		Message:      chatMessage{Role: "assistant", Content: a.text, ToolCalls: []struct{}{}},
		FinishReason: a.finish, StopReason: a.stop,
	}
	if len(a.logprobs) > 0 {
		choice.Logprobs = chatLogprobsOf(c.tok, a.tokens, a.logprobs)
	}
	out := chatAnswer{
		ID: c.id, Object: "chat.completion", Created: c.created, Model: c.model, SystemFingerprint: c.fingerprint,
		Usage: wholeUsage{tokenCounts: counts, Details: wholeDetails{CachedTokens: cached, CreatedCacheTokens: &none}},
	}
	if c.request.returnTokenIDs {
		choice.TokenIDs, out.PromptTokenIDs = a.tokens, c.request.sequences[0].prompt
	}
	out.Choices = []chatChoice{choice}
	return out
}
