package engine

import "strings"

// A stopText turns the texts of tokens into what may be shown: with stop
// strings, the last characters are held back until it is clear that they do
// not begin one.
type stopText struct {
	stops   []string
	hold    int    // characters that may begin a stop string
	pending string // seen but not yet shown
}

func newStopText(stops []string) *stopText {
	t := &stopText{stops: stops}
	for _, s := range stops {
		t.hold = max(t.hold, len(s)-1)
	}
	return t
}

// add takes the text of the next token and returns what may be shown now. If a
// stop string is complete, stop is that string and show ends before it.
// Without check, no stop string is looked for yet (min_tokens).
func (t *stopText) add(text string, check bool) (show, stop string, stopped bool) {
	t.pending += text
	if check {
		if at, s := t.first(); at >= 0 {
			show, t.pending = t.pending[:at], ""
			return show, s, true
		}
	}
	n := max(0, len(t.pending)-t.hold)
	show, t.pending = t.pending[:n], t.pending[n:]
	return show, "", false
}

// flush returns what was held back: the sequence ended without a stop string.
func (t *stopText) flush() string {
	show := t.pending
	t.pending = ""
	return show
}

// first finds the stop string that begins first in the pending text.
func (t *stopText) first() (at int, stop string) {
	at = -1
	for _, s := range t.stops {
		if i := strings.Index(t.pending, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}
