package openai

import (
	"math"

	"github.com/kvproof/kvproof/harness/row"
)

// sampling are the fields that both routes share. Temperature is always sent:
// left out, the server takes one from the model's generation_config or 1.0.
type sampling struct {
	Model          string        `json:"model"`
	Temperature    float64       `json:"temperature"`
	TopP           float64       `json:"top_p,omitempty"`
	Seed           int64         `json:"seed"`
	Stream         bool          `json:"stream"`
	StreamOptions  streamOptions `json:"stream_options"`
	IgnoreEOS      bool          `json:"ignore_eos,omitempty"`
	ReturnTokenIDs bool          `json:"return_token_ids"`
	CacheSalt      string        `json:"cache_salt,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type completionBody struct {
	sampling
	Prompt    []int32 `json:"prompt"`
	MaxTokens int     `json:"max_tokens"`
	Logprobs  int     `json:"logprobs,omitempty"`
	Stop      []int32 `json:"stop_token_ids,omitempty"`

	KVTransferParams map[string]bool `json:"kv_transfer_params,omitempty"`
	CachePrompt      *bool           `json:"cache_prompt,omitempty"` // llama.cpp's
}

// completion encodes a request for /v1/completions. The prompt is sent as
// ids, which bypass the server's tokenizer and its special tokens: its length
// is exact.
func (c *Client) completion(q row.Request) completionBody {
	prompt := q.Prompt
	if prompt == nil {
		prompt = []int32{} // null is a wrong type, an empty list is refused by name
	}
	body := completionBody{
		sampling:  c.sampling(q.Temperature, q.Seed, q.IgnoreEOS, q.CacheSalt),
		Prompt:    prompt,
		MaxTokens: q.MaxTokens,
		Logprobs:  q.Logprobs,
		Stop:      q.Stop,
	}
	body.TopP = q.TopP
	if q.SkipReuse {
		body.KVTransferParams, body.CachePrompt = c.skip, c.noCache
	}
	return body
}

// sampling drops the top bit of the seed: vLLM takes a signed one.
func (c *Client) sampling(temperature float64, seed uint64, ignoreEOS bool, salt string) sampling {
	return sampling{
		Model:          c.model,
		Temperature:    temperature,
		Seed:           int64(seed & math.MaxInt64),
		Stream:         true,
		StreamOptions:  streamOptions{IncludeUsage: true},
		IgnoreEOS:      ignoreEOS,
		ReturnTokenIDs: true,
		CacheSalt:      salt,
	}
}

// A Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"` // system, user, assistant
	Content string `json:"content"`
}

// A ChatRequest is one chat completion to ask for. There is no form of it
// with token ids: the server's template and tokenizer decide the prompt.
type ChatRequest struct {
	ID          string // sent as x-request-id
	Messages    []Message
	MaxTokens   int
	IgnoreEOS   bool
	Temperature float64
	Seed        uint64
	Logprobs    int    // top logprobs per token; 0: none
	CacheSalt   string // empty: not sent
}

type chatBody struct {
	sampling
	Messages            []Message `json:"messages"`
	MaxCompletionTokens int       `json:"max_completion_tokens"`
	Logprobs            bool      `json:"logprobs,omitempty"`
	TopLogprobs         int       `json:"top_logprobs,omitempty"`
}

func (c *Client) chat(q ChatRequest) chatBody {
	return chatBody{
		sampling:            c.sampling(q.Temperature, q.Seed, q.IgnoreEOS, q.CacheSalt),
		Messages:            q.Messages,
		MaxCompletionTokens: q.MaxTokens,
		Logprobs:            q.Logprobs > 0,
		TopLogprobs:         q.Logprobs,
	}
}
