package tokenizer

import "strings"

// A Message is one turn of a chat: its role (user, assistant, system) and text.
type Message struct{ Role, Content string }

// Chat writes a conversation as the text that the model sees: each turn is the
// special token of its role, the content and "<|end|>"; with
// generationPrompt the assistant's token follows, so that the answer is its
// turn.
func Chat(messages []Message, generationPrompt bool) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|" + m.Role + "|> " + m.Content + " <|end|> ")
	}
	if generationPrompt {
		b.WriteString("<|assistant|> ")
	}
	return b.String()
}
