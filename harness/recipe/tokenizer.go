package recipe

import (
	"context"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/row"
)

// A tokenizer asks the engine's POST /tokenize.
type tokenizer struct{ client *openai.Client }

func (t tokenizer) Tokenize(ctx context.Context, text string, special bool) ([]int32, error) {
	answer, err := t.client.Tokenize(ctx, text, special)
	return answer.Tokens, err
}

func (t tokenizer) TokenizeChat(ctx context.Context, messages []row.Message) ([]int32, error) {
	turns := make([]openai.Message, len(messages))
	for i, m := range messages {
		turns[i] = openai.Message{Role: m.Role, Content: m.Content}
	}
	answer, err := t.client.TokenizeChat(ctx, turns)
	return answer.Tokens, err
}
