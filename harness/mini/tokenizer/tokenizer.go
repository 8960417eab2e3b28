// Package tokenizer turns token ids into words and back, one word a token, so
// that any ids survive the way through text: the eight special tokens keep
// their names, and every other id n is the word "wn".
//
//	tok, err := tokenizer.New(4096)
//	tok.Encode("<s> w17 w4000") // 1, 17, 4000
//	tok.Decode([]int32{1, 17, 4000}, true) // "w17 w4000"
//
// A real tokenizer would add nothing here: the model has random weights, and a
// merge of words at a seam would only make prompt lengths uncertain. The
// vocabulary, the joining with single blanks and the chat template are those of
// the tiny word-level checkpoint with which vLLM 0.32.0 was observed. One thing
// is not: there a word of prose is the unknown token, here it is a token chosen
// by its hash, so that different texts are different prompts.
package tokenizer

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// The special tokens that others need to know.
const (
	PAD = 0
	BOS = 1
	EOS = 2 // ends a sequence unless the request ignores it
	UNK = 3 // a word "wn" that is not in the vocabulary
)

// FirstWord is the first id that is not special.
const FirstWord = 8

var special = [FirstWord]string{"<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"}

// A Tokenizer has the ids 0 … Vocab-1. It has no state and is safe for
// concurrent use.
type Tokenizer struct{ vocab int32 }

// New returns the tokenizer of a vocabulary of vocab ids, special ones
// included.
func New(vocab int) (*Tokenizer, error) {
	if vocab <= FirstWord {
		return nil, fmt.Errorf("making a tokenizer with a vocabulary of %d: need more than the %d special tokens", vocab, FirstWord)
	}
	return &Tokenizer{vocab: int32(vocab)}, nil
}

// Vocab is the number of ids.
func (t *Tokenizer) Vocab() int { return int(t.vocab) }

// Valid says whether id is in the vocabulary.
func (t *Tokenizer) Valid(id int32) bool { return id >= 0 && id < t.vocab }

// Word is the text of one token: "w17", or the name of a special one. An id
// that is not in the vocabulary is the unknown token.
func (t *Tokenizer) Word(id int32) string {
	switch {
	case !t.Valid(id):
		return special[UNK]
	case id < FirstWord:
		return special[id]
	}
	return "w" + strconv.Itoa(int(id))
}

// Delta is what a token adds to a text that is streamed: a blank and its word,
// or nothing if it is special and those are skipped.
func (t *Tokenizer) Delta(id int32, skipSpecial bool) string {
	if skipSpecial && id < FirstWord {
		return ""
	}
	return " " + t.Word(id)
}

// Decode joins the words of ids with single blanks. With skipSpecial the
// special tokens are left out; without it, Encode gives ids back.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.Delta(id, skipSpecial))
	}
	return strings.TrimPrefix(b.String(), " ")
}

// Encode splits text at white space and at the names of special tokens, which
// are recognized inside words too. A word of prose becomes one token by its
// hash, which Decode cannot undo; one like "w99999" that the vocabulary lacks
// becomes UNK. Nothing is added in front.
func (t *Tokenizer) Encode(text string) []int32 {
	ids := []int32{}
	for _, field := range strings.Fields(text) {
		for field != "" {
			word, id := nextSpecial(field)
			if word > 0 {
				ids = append(ids, t.word(field[:word]))
			}
			if id < 0 {
				break
			}
			ids = append(ids, id)
			field = field[word+len(special[id]):]
		}
	}
	return ids
}

// nextSpecial finds the first special token in s: where it begins and its id;
// len(s) and -1 if there is none.
func nextSpecial(s string) (at int, id int32) {
	at, id = len(s), -1
	for i, name := range special {
		if j := strings.Index(s[:at], name); j >= 0 {
			at, id = j, int32(i)
		}
	}
	return at, id
}

func (t *Tokenizer) word(s string) int32 {
	digits, ok := strings.CutPrefix(s, "w")
	if !ok || strings.Trim(digits, "0123456789") != "" || digits == "" {
		return t.hashed(s)
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < FirstWord || n >= int64(t.vocab) || digits != strconv.FormatInt(n, 10) {
		return UNK // "w007" is another word than "w7"
	}
	return int32(n)
}

// hashed is a word of the vocabulary for a word of prose: FNV-1a over its bytes.
func (t *Tokenizer) hashed(s string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // it never fails
	return FirstWord + int32(h.Sum32()%uint32(t.vocab-FirstWord))
}
