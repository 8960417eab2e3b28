package paced

import (
	"fmt"
	"slices"
)

// A shape is how the events of a route look, as vLLM 0.32.0 sends them.
type shape int

const (
	completion shape = iota
	chat
)

// words is how many different tokens there are.
const words = 64

// prepared are all events of tokens, by shape, token, whether it is the last,
// and whether its id is asked for: making them would cost the server more than
// sending them.
var prepared = prepare()

func prepare() (events [2][words][2][2][]byte) {
	for kind := range events {
		for w := range words {
			for last := range 2 {
				for ids := range 2 {
					events[kind][w][last][ids] = event(shape(kind), w, last == 1, ids == 1)
				}
			}
		}
	}
	return events
}

func event(kind shape, word int, last, ids bool) []byte {
	finish, id := "null", ""
	if last {
		finish = `"length"`
	}
	if ids {
		id = fmt.Sprintf(`,"token_ids":[%d]`, 100+word)
	}
	const head = `data: {"id":"cmpl-a212c72e45749c99","object":"%s","created":1796067216,"model":"` + Model + `","choices":[{"index":0,`
	if kind == chat {
		return fmt.Appendf(nil, head+`"delta":{"content":" w%d"},"logprobs":null,"finish_reason":%s%s}]}`+"\n\n", "chat.completion.chunk", word, finish, id)
	}
	return fmt.Appendf(nil, head+`"text":" w%d","logprobs":null,"finish_reason":%s,"stop_reason":null%s}]}`+"\n\n", "text_completion", word, finish, id)
}

// token is the event of the i-th token. The caller may append to it.
func (kind shape) token(i int, last, ids bool) []byte {
	return slices.Clip(prepared[kind][i%words][number(last)][number(ids)])
}

// end are the events after the last token.
func (kind shape) end(q request, tokens int) []byte {
	var text []byte
	if q.Options.Usage {
		prompt := q.promptTokens()
		text = fmt.Appendf(text, `data: {"id":"cmpl-a212c72e45749c99","object":"text_completion","created":1796067216,"model":"`+Model+
			`","choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}`+"\n\n", prompt, prompt+tokens, tokens)
	}
	return append(text, "data: [DONE]\n\n"...)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
