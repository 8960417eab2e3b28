package engine

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func unmarshal(t testing.TB, b []byte, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(b, v), "%s", b)
}

type chatWire struct {
	Choices []struct {
		Message struct{ Content string }
		Delta   struct {
			Role    string
			Content string
		}
		FinishReason *string `json:"finish_reason"`
		TokenIDs     []int32 `json:"token_ids"`
		Logprobs     *struct {
			Content []struct {
				Token       string
				Logprob     float64
				Bytes       []byte
				TopLogprobs []struct {
					Token   string
					Logprob float64
				} `json:"top_logprobs"`
			}
		}
	}
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Usage          *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

func chatBody(content any) object {
	return object{
		"messages":              []object{{"role": "system", "content": "w9"}, {"role": "user", "content": content}},
		"max_completion_tokens": 5, "temperature": 0, "ignore_eos": true, "return_token_ids": true, "logprobs": true, "top_logprobs": 2,
	}
}

// Chat is a completion of the templated prompt, streamed or not.
func TestChat(t *testing.T) {
	e := newEngine(t, nil)
	ids := []int32{6, 9, 7, 4, 10, 11, 7, 5}
	want := complete(t, e, ask(ids).with(object{"max_tokens": 5}))

	var got chatWire
	parts := []object{{"type": "text", "text": "w10"}, {"type": "text", "text": "w11"}}
	unmarshal(t, post(t, e, "/v1/chat/completions", chatBody(parts)).Body.Bytes(), &got)
	require.Equal(t, ids, got.PromptTokenIDs)
	require.Equal(t, want.text, got.Choices[0].Message.Content)
	require.Equal(t, want.tokens, got.Choices[0].TokenIDs)
	require.Equal(t, 5, got.Usage.Completion)
	require.Len(t, got.Choices[0].Logprobs.Content, 5)
	for i, l := range got.Choices[0].Logprobs.Content {
		require.Equal(t, e.tokenizer.Word(want.tokens[i]), l.Token)
		require.InDelta(t, *want.logprobs[i], l.Logprob, 0)
		require.Len(t, l.TopLogprobs, 2)
		require.Equal(t, l.Token, l.TopLogprobs[0].Token)
	}

	text, finish := "", ""
	payloads := events(t, post(t, e, "/v1/chat/completions", chatBody("w10 w11").with(object{"stream": true})).Body)
	for i, payload := range payloads[:len(payloads)-1] {
		var chunk chatWire
		unmarshal(t, []byte(payload), &chunk)
		require.Equal(t, i == 0, chunk.Choices[0].Delta.Role == "assistant", "the role comes first, alone")
		if i == 0 {
			require.Empty(t, chunk.Choices[0].Delta.Content)
		}
		text += chunk.Choices[0].Delta.Content
		if chunk.Choices[0].FinishReason != nil {
			finish = *chunk.Choices[0].FinishReason
		}
	}
	require.Equal(t, want.text, text)
	require.Equal(t, "length", finish)
}

// Without a limit, a chat answer may be as long as the context allows.
func TestChatHasNoLimit(t *testing.T) {
	e := newEngine(t, nil)
	body := chatBody("w10 w11").with(object{"max_completion_tokens": nil})
	var got chatWire
	unmarshal(t, post(t, e, "/v1/chat/completions", body).Body.Bytes(), &got)
	require.Equal(t, 1024-8, got.Usage.Completion)
}

func TestChatRefusals(t *testing.T) {
	e := newEngine(t, nil)
	for _, c := range []struct {
		name string
		body object
		says string
	}{
		{"no messages", object{}, "Field required"},
		{"empty messages", object{"messages": []object{}}, "at least one message"},
		{"an image", chatBody([]object{{"type": "image_url"}}), "image_url"},
		{"content that is a number", chatBody(5), "string or a list of parts"},
		{"too many alternatives", chatBody("w10").with(object{"top_logprobs": 21}), "max allowed: 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := post(t, e, "/v1/chat/completions", c.body)
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.Contains(t, w.Body.String(), c.says)
		})
	}
}

func TestTokenize(t *testing.T) {
	e := newEngine(t, nil)
	body := func(w interface{ String() string }) string { return w.String() }
	require.Equal(t, `{"count":2,"max_model_len":1024,"tokens":[10,11],"token_strs":null}`,
		body(post(t, e, "/tokenize", object{"prompt": "w10 w11"}).Body))
	require.Equal(t, `{"count":2,"max_model_len":1024,"tokens":[10,1],"token_strs":["w10","<s>"]}`,
		body(post(t, e, "/tokenize", object{"prompt": "w10 <s>", "return_token_strs": true}).Body))
	require.Equal(t, `{"count":4,"max_model_len":1024,"tokens":[4,10,7,5],"token_strs":null}`,
		body(post(t, e, "/tokenize", object{"messages": []object{{"role": "user", "content": "w10"}}}).Body))
	require.Equal(t, `{"prompt":"w10 <s>"}`, body(post(t, e, "/detokenize", object{"tokens": []int{10, 1}}).Body))
	require.Equal(t, http.StatusBadRequest, post(t, e, "/detokenize", object{"tokens": []int{1024}}).Code)
	require.Equal(t, http.StatusBadRequest, post(t, e, "/tokenize", object{}).Code)
	require.Equal(t, http.StatusNotFound, post(t, e, "/tokenize", object{"model": "nope", "prompt": "w10"}).Code)

	// Any ids come back.
	ids := prompt(1, 200)
	var text struct{ Prompt string }
	unmarshal(t, post(t, e, "/detokenize", object{"tokens": ids}).Body.Bytes(), &text)
	var tokens struct{ Tokens []int32 }
	unmarshal(t, post(t, e, "/tokenize", object{"prompt": text.Prompt}).Body.Bytes(), &tokens)
	require.Equal(t, ids, tokens.Tokens)
}
