package engine

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// A logprob is written as null if it is NaN (observed with NaN in the KV) and
// as -9999 if it is minus infinity.
type logprob float64

func (l logprob) MarshalJSON() ([]byte, error) {
	switch x := float64(l); {
	case math.IsNaN(x):
		return []byte("null"), nil
	case x < -9999:
		return []byte("-9999.0"), nil
	default:
		return json.Marshal(x)
	}
}

// completionLogprobs are the logprobs of completions: parallel lists, an entry
// per token. An offset counts the characters of the tokens, without the blanks
// between them, as observed.
type completionLogprobs struct {
	TextOffset    []int         `json:"text_offset"`
	TokenLogprobs []logprob     `json:"token_logprobs"`
	Tokens        []string      `json:"tokens"`
	TopLogprobs   []topLogprobs `json:"top_logprobs"`
}

// topLogprobs are the alternatives of one token as an object in their order:
// the sampled token first.
type topLogprobs []namedLogprob

type namedLogprob struct {
	token   string
	logprob logprob
}

func (t topLogprobs) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, n := range t {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(n.token)
		if err != nil {
			return nil, err
		}
		value, err := n.logprob.MarshalJSON()
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// alternatives are the sampled token and the best ones after it, in order.
func alternatives(tok *tokenizer.Tokenizer, token int32, l *tokenLogprob) topLogprobs {
	named := topLogprobs{{tok.Word(token), logprob(l.logprob)}}
	for i, id := range l.topIDs {
		if id != token {
			named = append(named, namedLogprob{tok.Word(id), logprob(l.top[i])})
		}
	}
	return named
}

func (c *completionShape) logprobs(prompt int, tokens []int32, lps []*tokenLogprob) *completionLogprobs {
	out := &completionLogprobs{}
	for i, l := range lps {
		word := c.tok.Word(tokens[i])
		out.TextOffset = append(out.TextOffset, c.offsets[prompt])
		c.offsets[prompt] += len(word)
		out.Tokens = append(out.Tokens, word)
		out.TokenLogprobs = append(out.TokenLogprobs, logprob(l.logprob))
		out.TopLogprobs = append(out.TopLogprobs, alternatives(c.tok, tokens[i], l))
	}
	return out
}

// chatLogprobs are the logprobs of chat answers.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	chatToken
	TopLogprobs []chatToken `json:"top_logprobs"`
}

type chatToken struct {
	Token   string  `json:"token"`
	Logprob logprob `json:"logprob"`
	Bytes   []int   `json:"bytes"` // of the token's text
}

func newChatToken(word string, l float64) chatToken {
	t := chatToken{Token: word, Logprob: logprob(l)}
	for _, b := range []byte(word) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}

func chatLogprobsOf(tok *tokenizer.Tokenizer, tokens []int32, lps []*tokenLogprob) *chatLogprobs {
	out := &chatLogprobs{}
	for i, l := range lps {
		entry := chatLogprob{chatToken: newChatToken(tok.Word(tokens[i]), l.logprob), TopLogprobs: []chatToken{}}
		for j, id := range l.topIDs {
			entry.TopLogprobs = append(entry.TopLogprobs, newChatToken(tok.Word(id), l.top[j]))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}
