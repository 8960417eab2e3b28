package openai

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// A variant is another spelling of the same stream.
type variant struct {
	name string
	of   func(stream string) string
}

var variants = []variant{
	{"as it is", func(s string) string { return s }},
	{"CRLF", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
	{"CR", func(s string) string { return strings.ReplaceAll(s, "\n", "\r") }},
	{"mixed ends", func(s string) string { return strings.ReplaceAll(s, "\n\n", "\r\n\r") }},
	{"byte order mark", func(s string) string { return "\xef\xbb\xbf" + s }},
	{"no blank", func(s string) string { return strings.ReplaceAll(s, "data: ", "data:") }},
	{"comments", func(s string) string { return strings.ReplaceAll(s, "data: ", ":\n: why\ndata: ") }},
	{"keep-alives", func(s string) string { return strings.ReplaceAll(s, "data: ", ": keep-alive\n\ndata: ") }},
	{"empty events", func(s string) string { return strings.ReplaceAll(s, "data: ", "data:\n\ndata: ") }},
	{"fields", func(s string) string {
		return strings.ReplaceAll(s, "data: ", "event: message\nid: 7\nretry: 10\nnonsense\nx: y\ndata: ")
	}},
	{"several data lines", func(s string) string { return strings.ReplaceAll(s, "data: {", "data: {\ndata:\ndata:  ") }},
}

func TestCasesInEverySpelling(t *testing.T) {
	for _, c := range loadCases(t) {
		for _, v := range variants {
			t.Run(c.Name+"/"+v.name, func(t *testing.T) {
				// Cutting inside the replaced text would differ by variant, so
				// the writes are those that end with an event.
				var parts [][]byte
				var times []int
				held := ""
				for i, part := range c.writes() {
					held += string(part)
					done := strings.LastIndex(held, "\n\n") + len("\n\n")
					if done < len("\n\n") {
						continue
					}
					parts = append(parts, []byte(v.of(held[:done])))
					times = append(times, c.Writes[i][0])
					held = held[done:]
				}
				if v.name == "byte order mark" {
					for i := range parts[1:] {
						parts[i+1] = bytes.TrimPrefix(parts[i+1], byteOrderMark)
					}
				}
				got := play(parts, nil, func(read int) time.Time { return nominal(times[read-1]) })
				c.check(t, got)
			})
		}
	}
}

// scratch is the buffer of collect's readers, whose tests are not parallel; a
// fresh one for each of some 100,000 splits would be most of the work.
var scratch [readSize]byte

// collect reads all events.
func collect(tb testing.TB, parts ...[]byte) []Event {
	tb.Helper()
	reads := 0
	reader := newReader(&pieces{parts: parts}, scratch[:], func() (time.Time, int) {
		reads++
		return nominalStart, reads
	})
	var events []Event
	for {
		event, err := reader.Next()
		if err != nil {
			return events
		}
		events = append(events, event)
	}
}

// preamble is what every event of the cases repeats.
var preamble = regexp.MustCompile(`"id":"case","object":"[a-z_.]+","created":\d+,"model":"m",`)

func TestCasesAtEverySplit(t *testing.T) {
	for _, c := range loadCases(t) {
		for _, v := range variants {
			t.Run(c.Name+"/"+v.name, func(t *testing.T) {
				text := string(c.Stream)
				if v.name != "as it is" {
					text = preamble.ReplaceAllString(text, "") // the work grows with the square
				}
				stream := []byte(v.of(text))
				whole := collect(t, slices.Clone(stream))
				require.NotEmpty(t, whole)
				var ends []int // of the events, where they are easily told
				if v.name == "as it is" {
					for i := range whole {
						ends = append(ends, endOf(stream, i))
					}
				}
				for at := 1; at < len(stream); at++ {
					got := collect(t, stream[:at], stream[at:])
					if !slices.EqualFunc(whole, got, sameEvent) {
						require.Equal(t, whole, got, "cut at %d", at)
					}
					for i, end := range ends {
						// An event belongs to the read with its last byte.
						if (end <= at) != (got[i].Read == 1) {
							require.Fail(t, "wrong read", "event %d of read %d, cut at %d", i, got[i].Read, at)
						}
					}
				}
			})
		}
	}
}

// sameEvent compares what must not depend on the reads.
func sameEvent(a, b Event) bool {
	return a.Name == b.Name && a.ID == b.ID && bytes.Equal(a.Data, b.Data)
}

// endOf is the offset behind the i-th event of a stream with LF ends.
func endOf(stream []byte, i int) int {
	end := 0
	for range i + 1 {
		end += bytes.Index(stream[end:], []byte("\n\n")) + 2
	}
	return end
}

func TestByteByByte(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			var parts [][]byte
			for i := range c.Stream {
				parts = append(parts, c.Stream[i:i+1])
			}
			got := play(parts, nil, func(read int) time.Time {
				for _, w := range c.Writes {
					if read <= w[1] {
						return nominal(w[0])
					}
				}
				return time.Time{}
			})
			if c.Name == "sse-07-coalesced" {
				require.NotContains(t, got.Warnings, row.Coalesced, "every chunk had a read of its own")
				return
			}
			c.check(t, got)
		})
	}
}

// A cut after any write must not look like a whole answer.
func TestCasesCutShort(t *testing.T) {
	for _, c := range loadCases(t) {
		for n := range c.writes() {
			parts := c.writes()[:n]
			seen := string(bytes.Join(parts, nil))
			complete := seen[:strings.LastIndex(seen, "\n\n")+1]
			got := play(parts, nil, func(read int) time.Time { return nominal(read) })
			switch {
			case strings.Contains(complete, `{"error"`):
				require.Equal(t, row.StreamError, got.Status, "%s after %d writes", c.Name, n)
			case strings.Contains(complete, `"finish_reason":"`):
				require.Equal(t, row.OK, got.Status, "%s after %d writes", c.Name, n)
				require.Contains(t, got.Warnings, row.MissingDone)
			default:
				require.Equal(t, row.CutOff, got.Status, "%s after %d writes", c.Name, n)
				require.NotEmpty(t, got.Err)
			}
		}
	}
}
