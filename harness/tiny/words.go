package tiny

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteTokenizer makes dir hold the tokenizer of a model of another vocabulary
// and context, in the layout of Hugging Face and without weights: what a client
// needs that tokenizes by itself. The miniature models have the same words.
func WriteTokenizer(dir string, vocab, context int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing a tokenizer: %w", err)
	}
	settings, words := tokenizerConfig(), tokenizer()
	settings["model_max_length"] = context
	vocabulary := make(map[string]int, vocab)
	for id := range vocab {
		vocabulary[word(id)] = id
	}
	words["model"].(object)["vocab"] = vocabulary
	shape := config()
	shape["vocab_size"], shape["max_position_embeddings"] = vocab, context
	if err := errors.Join(
		writeJSON(filepath.Join(dir, "config.json"), shape),
		writeJSON(filepath.Join(dir, "tokenizer_config.json"), settings),
		writeJSON(filepath.Join(dir, "tokenizer.json"), words),
	); err != nil {
		return fmt.Errorf("writing a tokenizer: %w", err)
	}
	return nil
}
