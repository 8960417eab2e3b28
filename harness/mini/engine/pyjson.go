package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A jsonFault is where and why Python's json module refuses a text. The
// server answers with its offset and its words (captured: err-malformed-json),
// which encoding/json does not have. NaN and Infinity, which Python takes, are
// faults here.
type jsonFault struct {
	at   int // in characters
	what string
}

// pythonFault finds the fault of a text that is not JSON; nil if there is
// none.
func pythonFault(text string) (fault *jsonFault) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(jsonFault)
			if !ok {
				panic(r)
			}
			f.at = utf8.RuneCountInString(text[:f.at])
			fault = &f
		}
	}()
	s := jsonScanner{text: text}
	s.space()
	s.value(0)
	s.space()
	if s.at < len(s.text) {
		s.fail(s.at, "Extra data")
	}
	return nil
}

// apiError is the answer to a body with this fault.
func (f jsonFault) apiError() *apiError {
	at := fmt.Sprintf("body.%d", f.at)
	return invalid(&at, fmt.Sprintf("{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': %s}}",
		at, pythonString(f.what)))
}

// A jsonScanner walks through a text by the rules of Python's json module and
// leaves at the first fault with a panic, as recursive parsers like to.
type jsonScanner struct {
	text string
	at   int
}

// maxDepth is where Python's recursion limit would end it.
const maxDepth = 1000

func (s *jsonScanner) fail(at int, what string) { panic(jsonFault{at, what}) }

// peek is the next byte, 0 at the end.
func (s *jsonScanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *jsonScanner) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t\n\r", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *jsonScanner) value(depth int) {
	if depth > maxDepth {
		s.fail(s.at, "maximum recursion depth exceeded")
	}
	switch c := s.peek(); {
	case c == '"':
		s.string()
	case c == '{':
		s.object(depth)
	case c == '[':
		s.array(depth)
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if strings.HasPrefix(s.text[s.at:], word) {
				s.at += len(word)
				return
			}
		}
		s.fail(s.at, "Expecting value")
	}
}

func (s *jsonScanner) object(depth int) {
	s.at++
	s.space()
	if s.peek() == '}' {
		s.at++
		return
	}
	for {
		if s.peek() != '"' {
			s.fail(s.at, "Expecting property name enclosed in double quotes")
		}
		s.string()
		s.space()
		if s.peek() != ':' {
			s.fail(s.at, "Expecting ':' delimiter")
		}
		s.at++
		s.space()
		s.value(depth + 1)
		s.space()
		if s.end('}') {
			return
		}
	}
}

func (s *jsonScanner) array(depth int) {
	s.at++
	s.space()
	if s.peek() == ']' {
		s.at++
		return
	}
	for {
		s.value(depth + 1)
		s.space()
		if s.end(']') {
			return
		}
	}
}

// end reads what may follow an element: the bracket that closes, or a comma.
func (s *jsonScanner) end(bracket byte) bool {
	switch s.peek() {
	case bracket:
		s.at++
		return true
	case ',':
		s.at++
		s.space()
		return false
	}
	s.fail(s.at, "Expecting ',' delimiter")
	return false
}

func (s *jsonScanner) string() {
	begin := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return
		case c < ' ':
			s.fail(s.at, "Invalid control character at")
		case c == '\\':
			s.escape(begin)
		}
	}
	s.fail(begin, "Unterminated string starting at")
}

// escape stands at a backslash and moves to the last byte of what it escapes.
func (s *jsonScanner) escape(begin int) {
	s.at++
	switch c := s.peek(); {
	case s.at >= len(s.text):
		s.fail(begin, "Unterminated string starting at")
	case c == 'u':
		for i := 1; i <= 4; i++ {
			if s.at+i >= len(s.text) || !strings.ContainsRune("0123456789abcdefABCDEF", rune(s.text[s.at+i])) {
				s.fail(s.at, "Invalid \\uXXXX escape")
			}
		}
		s.at += 4
	case strings.IndexByte(`"\/bfnrt`, c) < 0:
		s.fail(s.at-1, "Invalid \\escape")
	}
}

func (s *jsonScanner) number() {
	begin := s.at
	if s.peek() == '-' {
		s.at++
	}
	switch c := s.peek(); {
	case c == '0':
		s.at++
	case c >= '1' && c <= '9':
		s.digits()
	default:
		s.fail(begin, "Expecting value")
	}
	if s.peek() == '.' && s.digitAt(s.at+1) {
		s.at++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		at := s.at + 1
		if at < len(s.text) && (s.text[at] == '+' || s.text[at] == '-') {
			at++
		}
		if s.digitAt(at) {
			s.at = at
			s.digits()
		}
	}
}

func (s *jsonScanner) digits() {
	for s.digitAt(s.at) {
		s.at++
	}
}

func (s *jsonScanner) digitAt(i int) bool {
	return i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9'
}

// pythonString writes a string as Python's repr does: in single quotes, unless
// there are single quotes and no double ones in it.
func pythonString(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	r := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, quote, `\`+quote)
	return quote + r.Replace(s) + quote
}
