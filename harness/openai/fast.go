package openai

import (
	"math"
	"unicode/utf8"
)

// A fastReader decodes the events that make up nearly all of a stream: one
// choice with text or content and token ids, everything else in it scalar.
// Whatever is not plainly that is left to encoding/json, which costs some
// fifteen times as much: at hundreds of streams that was half of the client's
// CPU, and on a shared machine the client's CPU is the server's latency. What it
// accepts it must read as encoding/json does, which a fuzz test holds it to.
type fastReader struct {
	text []byte
	at   int

	choice [1]choice // of the last event: valid until the next
	ids    []int32
	prompt []int32
}

// read decodes an event; false: let encoding/json do it.
func (r *fastReader) read(event []byte) (p payload, ok bool) {
	r.text, r.at = event, 0
	r.choice[0] = choice{}
	var seen keys
	ok = r.object(func(key []byte) bool {
		switch string(key) {
		case "choices":
			if !seen.first(1) || !r.byte('[') {
				return false
			}
			if r.byte(']') {
				p.Choices = r.choice[:0]
				return true
			}
			if !r.readChoice() || !r.byte(']') {
				return false
			}
			p.Choices = r.choice[:]
			return true
		case "usage", "error":
			return r.null()
		case "object":
			value, ok := r.string()
			p.Object = string(value)
			return ok && seen.first(2)
		default:
			return r.skip()
		}
	})
	return p, ok && r.space() == 0
}

func (r *fastReader) readChoice() bool {
	c := &r.choice[0]
	var seen keys
	return r.object(func(key []byte) (ok bool) {
		switch string(key) {
		case "index":
			var n int32
			n, ok = r.integer()
			c.Index = int(n)
			return ok && seen.first(1)
		case "text":
			c.Text, ok = r.textOrNull()
			return ok && seen.first(2)
		case "finish_reason":
			c.FinishReason, ok = r.textOrNull()
			return ok && seen.first(4)
		case "token_ids":
			r.ids, ok = r.integers(r.ids[:0])
			c.TokenIDs = r.ids
			return ok && seen.first(8)
		case "prompt_token_ids":
			r.prompt, ok = r.integers(r.prompt[:0])
			c.PromptIDs = r.prompt
			return ok && seen.first(16)
		case "logprobs":
			return r.null()
		case "delta":
			return seen.first(32) && r.readDelta(&c.Delta)
		default:
			return r.skip()
		}
	})
}

func (r *fastReader) readDelta(d *delta) bool {
	var seen keys
	return r.object(func(key []byte) (ok bool) {
		switch string(key) {
		case "content":
			d.Content, ok = r.textOrNull()
			return ok && seen.first(1)
		case "role":
			_, ok = r.textOrNull()
			return ok
		default: // reasoning, tool calls: rare, and of many shapes
			return false
		}
	})
}

// keys are those that an object has had: of two equal ones the last counts for
// encoding/json, and neither for the fast reader.
type keys int

func (k *keys) first(bit keys) bool {
	was := *k&bit != 0
	*k |= bit
	return !was
}

// object reads an object and asks value to read the value of each key. Keys
// that differ from a known one by case would be taken for it by encoding/json.
func (r *fastReader) object(value func(key []byte) bool) bool {
	if !r.byte('{') {
		return false
	}
	if r.byte('}') {
		return true
	}
	for {
		r.space()
		key, ok := r.string()
		if !ok || !lowerCase(key) || !r.byte(':') {
			return false
		}
		r.space()
		if !value(key) {
			return false
		}
		if r.byte('}') {
			return true
		}
		if !r.byte(',') {
			return false
		}
	}
}

func lowerCase(key []byte) bool {
	for _, c := range key {
		if c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// space passes over white space and returns how many bytes are left.
func (r *fastReader) space() int {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return len(r.text) - r.at
		}
	}
	return 0
}

// byte takes a byte, with white space before it, if it is c.
func (r *fastReader) byte(c byte) bool {
	if r.space() > 0 && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// string reads a string without escapes, which is valid UTF-8.
func (r *fastReader) string() ([]byte, bool) {
	if !r.byte('"') {
		return nil, false
	}
	start, ascii := r.at, true
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			value := r.text[start:r.at]
			r.at++
			return value, ascii || utf8.Valid(value)
		case c == '\\' || c < ' ':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

func (r *fastReader) null() bool { return r.word("null") }

func (r *fastReader) word(word string) bool {
	r.space()
	if len(r.text)-r.at < len(word) || string(r.text[r.at:r.at+len(word)]) != word {
		return false
	}
	r.at += len(word)
	return true
}

func (r *fastReader) textOrNull() (string, bool) {
	if r.null() {
		return "", true
	}
	value, ok := r.string()
	return string(value), ok
}

// integer reads a whole number of 32 bits in its plainest form.
func (r *fastReader) integer() (int32, bool) {
	n, ok := r.digits(10)
	return int32(n), ok && n <= math.MaxInt32
}

func (r *fastReader) digits(most int) (n int64, ok bool) {
	r.space()
	start := r.at
	for r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '9' && r.at-start < most {
		n = 10*n + int64(r.text[r.at]-'0')
		r.at++
	}
	digits := r.at - start
	return n, digits == 1 || digits > 1 && r.text[start] != '0'
}

// integers reads null, or a list of numbers into into.
func (r *fastReader) integers(into []int32) ([]int32, bool) {
	if r.null() {
		return nil, true
	}
	if !r.byte('[') {
		return nil, false
	}
	if r.byte(']') {
		return into, true
	}
	for {
		n, ok := r.integer()
		if !ok {
			return into, false
		}
		into = append(into, n)
		if r.byte(']') {
			return into, true
		}
		if !r.byte(',') {
			return into, false
		}
	}
}

// skip passes over a value that nobody looks at: a string, a whole number,
// null, true or false.
func (r *fastReader) skip() bool {
	if r.space() == 0 {
		return false
	}
	switch c := r.text[r.at]; {
	case c == '"':
		_, ok := r.string()
		return ok
	case '0' <= c && c <= '9':
		_, ok := r.digits(18)
		return ok
	default:
		return r.null() || r.word("true") || r.word("false")
	}
}
