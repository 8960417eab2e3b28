package tiny

import "fmt"

// Ids of special tokens.
const (
	padToken   = 0
	beginToken = 1
	endToken   = 2
	unknown    = 3
)

// special are the tokens below [fixtures.FirstToken], which no workload sends.
var special = []string{"<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"}

// word is the text of a token: every id is one word, so that the ids of a text
// and the text of ids are known without the model.
func word(id int) string {
	if id < len(special) {
		return special[id]
	}
	return fmt.Sprintf("w%d", id)
}

// chatTemplate puts each message between its role and <|end|>.
const chatTemplate = "{% for m in messages %}<|{{ m['role'] }}|> " +
	"{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endif %}" +
	" <|end|> {% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}"

func tokenizerConfig() object {
	return object{
		"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": Context,
		"bos_token": special[beginToken], "eos_token": special[endToken],
		"unk_token": special[unknown], "pad_token": special[padToken],
		"add_bos_token": false, "clean_up_tokenization_spaces": false, "chat_template": chatTemplate,
	}
}

// tokenizer is a WordLevel tokenizer in the JSON of Hugging Face's tokenizers
// library. Its decoder is the WordPiece one because that joins words with
// single blanks; the prefix never occurs.
func tokenizer() object {
	added := make([]object, len(special))
	for id, content := range special {
		added[id] = object{
			"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
		}
	}
	vocabulary := make(map[string]int, Vocab)
	for id := range Vocab {
		vocabulary[word(id)] = id
	}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": object{"type": "WhitespaceSplit"}, "post_processor": nil,
		"decoder": object{"type": "WordPiece", "prefix": "##", "cleanup": false},
		"model":   object{"type": "WordLevel", "vocab": vocabulary, "unk_token": special[unknown]},
	}
}
