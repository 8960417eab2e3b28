package row

import "context"

// A Message is one turn of a chat.
type Message struct {
	Role    string // system, user, assistant
	Content string
}

// A Tokenizer turns text into the token ids of the model as the server does.
type Tokenizer interface {
	// Tokenize returns the ids of a text, with the special tokens that the
	// server would put in front of a prompt if special.
	Tokenize(ctx context.Context, text string, special bool) ([]int32, error)

	// TokenizeChat returns the ids of a conversation by the model's chat
	// template, up to where the answer begins.
	TokenizeChat(context.Context, []Message) ([]int32, error)
}
