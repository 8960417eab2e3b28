package doctest

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	span    = regexp.MustCompile("`([^`]+)`")
	heading = regexp.MustCompile(`^#{1,6}[ \t]+(.+?)[ \t]*#*$`)
)

// A Mention is something that a page names, with its place.
type Mention struct {
	File string
	Line int
	Text string
}

// String gives the mention as an error begins: file:line: text.
func (m Mention) String() string { return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text) }

// Links returns the targets of the inline links of a page.
func Links(file string, text []byte) []Mention { return mentions(file, text, link) }

// Spans returns the code spans of a page, without their backticks.
func Spans(file string, text []byte) []Mention { return mentions(file, text, span) }

func mentions(file string, text []byte, pattern *regexp.Regexp) []Mention {
	var found []Mention
	prose(text, func(number int, line string) {
		if pattern == link {
			line = span.ReplaceAllString(line, "")
		}
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			found = append(found, Mention{file, number, m[1]})
		}
	})
	return found
}

// Anchors returns the names under which the headings of a page can be linked
// to, made as GitHub makes them.
func Anchors(text []byte) map[string]bool {
	anchors := map[string]bool{}
	prose(text, func(_ int, line string) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, m[1])
		anchors[name] = true
	})
	return anchors
}

// FirstColumn returns the first code span of each row of the table whose first
// header cell is header. A missing table is an error.
func FirstColumn(file string, text []byte, header string) ([]Mention, error) {
	var column []Mention
	inTable, found := false, false
	prose(text, func(number int, line string) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 || cells[0] != "" {
			inTable = false
			return
		}
		first := strings.TrimSpace(cells[1])
		if first == header {
			inTable, found = true, true
		} else if m := span.FindStringSubmatch(first); inTable && m != nil {
			column = append(column, Mention{file, number, m[1]})
		}
	})
	if !found {
		return nil, fmt.Errorf("%s: no table has %q over its first column", file, header)
	}
	return column, nil
}

// prose calls f for each line, numbered from 1, that lies outside fenced
// blocks.
func prose(text []byte, f func(number int, line string)) {
	marks := ""
	for i, line := range strings.Split(string(text), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case marks == "" && m != nil:
			marks = m[2]
		case marks != "" && m != nil && m[3] == "" && strings.HasPrefix(m[2], marks):
			marks = ""
		case marks == "":
			f(i+1, line)
		}
	}
}
