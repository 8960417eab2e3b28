package openai

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// message is an event with data only.
func message(data string) Event { return Event{Data: []byte(data)} }

func TestReader(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		want   []Event
	}{
		{"nothing", "", nil},
		{"one event", "data: a\n\n", []Event{message("a")}},
		{"an event without its empty line is dropped", "data: a\n\ndata: b\n", []Event{message("a")}},
		{"lines are joined", "data: a\ndata: b\ndata\ndata:c\n\n", []Event{message("a\nb\n\nc")}},
		{"empty data is an event", "data\n\ndata:\n\ndata\ndata\n\n", []Event{message(""), message(""), message("\n")}},
		{"no data is none", "event: x\n\nid: 1\n\n: c\n\n\n\n", nil},
		{"one blank goes, others stay", "data:  a \n\ndata:\tb\n\n", []Event{message(" a "), message("\tb")}},
		{"name is for one event", "event: error\ndata: a\n\ndata: b\n\n", []Event{{Name: "error", Data: []byte("a")}, message("b")}},
		{"name of an event without data is forgotten", "event: error\n\ndata: b\n\n", []Event{message("b")}},
		{"id stays", "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []Event{
			{ID: "1", Data: []byte("a")}, {ID: "1", Data: []byte("b")}, message("c"),
		}},
		{"id with NUL is ignored", "id: 1\x00\ndata: a\n\n", []Event{message("a")}},
		{"other fields are ignored", "retry: 5\ndatax: n\n data: n\nDATA: n\ndata: a\n\n", []Event{message("a")}},
		{"colons in data", "data: a: b:\n\n", []Event{message("a: b:")}},
		{"one byte order mark", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []Event{message("a")}},
		{"ends may be mixed", "data: a\r\r\ndata: b\n\rdata: c\r\n\r\ndata: d\r\r", []Event{message("a"), message("b"), message("c"), message("d")}},
		{"bytes stay as they are", "data: \xff\xe6\x97\n\n", []Event{message("\xff\xe6\x97")}},
		{"a line of any length", "data: " + strings.Repeat("x", 1<<20) + "\n\n", []Event{message(strings.Repeat("x", 1<<20))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := collect(t, []byte(tt.stream))
			require.Len(t, got, len(tt.want))
			for i := range got {
				require.True(t, sameEvent(tt.want[i], got[i]), "event %d = %.80q, want %.80q", i, got[i].Data, tt.want[i].Data)
			}
		})
	}
}

// An event has the stamp and number of the read that brought its last byte,
// and a CR does not wait for an LF.
func TestReaderStamps(t *testing.T) {
	parts := [][]byte{
		[]byte("data: a\n\ndata: b\n\nda"), []byte("ta: c"), []byte("\n"), []byte("\n"),
		[]byte("data: d\r\n\r"), []byte("\ndata: e\n\n"),
	}
	now := nominalStart
	reader := NewReader(&pieces{parts: parts}, func() time.Time {
		now = now.Add(time.Second)
		return now
	})
	var reads []int
	for range 5 {
		event, err := reader.Next()
		require.NoError(t, err)
		require.Equal(t, nominalStart.Add(time.Duration(event.Read)*time.Second), event.At)
		reads = append(reads, event.Read)
	}
	require.Equal(t, []int{1, 1, 4, 5, 6}, reads)
	_, err := reader.Next()
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, reader.Held())
}

func TestReaderEnds(t *testing.T) {
	broken := errors.New("broken")
	reader := NewReader(&pieces{parts: [][]byte{[]byte("data: a\n\ndata: bc\nda")}, err: broken}, time.Now)
	event, err := reader.Next()
	require.NoError(t, err)
	require.Equal(t, "a", string(event.Data))
	for range 2 {
		_, err = reader.Next()
		require.ErrorIs(t, err, broken)
	}
	require.Equal(t, len("bc")+len("da"), reader.Held())

	_, err = NewReader(emptyReads{}, time.Now).Next()
	require.ErrorIs(t, err, io.ErrNoProgress)
}

// emptyReads brings neither bytes nor an error.
type emptyReads struct{}

func (emptyReads) Read([]byte) (int, error) { return 0, nil }

// FuzzReader holds the reader to one that is written for whole streams, at
// any split.
func FuzzReader(f *testing.F) {
	for _, c := range loadCases(f) {
		f.Add(c.Stream, uint16(c.Writes[0][1]), uint16(7))
	}
	for _, v := range variants {
		f.Add([]byte(v.of("event: e\nid: 1\ndata: {\"a\":1}\n\ndata: [DONE]\n\n")), uint16(10), uint16(1))
	}
	f.Add([]byte("\xef\xbb\xbf\xef\xbb\xbfdata\r\r\n\n:\x00\rdata:\xff\n\n"), uint16(2), uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, cut, step uint16) {
		want := wholeStream(string(stream))
		first := min(int(cut), len(stream))
		parts := [][]byte{stream[:first]}
		for part := range slices.Chunk(stream[first:], int(step)+1) {
			parts = append(parts, part)
		}
		parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
		got := collect(t, parts...)
		if !slices.EqualFunc(want, got, sameEvent) {
			require.Equal(t, want, got)
		}
		for i := 1; i < len(got); i++ {
			require.LessOrEqual(t, got[i-1].Read, got[i].Read)
		}
	})
}

// wholeStream follows the standard's text step by step, on a stream that is
// there as a whole.
func wholeStream(stream string) []Event {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	var events []Event
	var data, name, id string
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != "" {
				events = append(events, Event{Name: name, ID: id, Data: []byte(strings.TrimSuffix(data, "\n"))})
			}
			data, name = "", ""
			continue
		}
		field, value, found := strings.Cut(line, ":")
		if found {
			value = strings.TrimPrefix(value, " ")
		}
		switch {
		case field == "data":
			data += value + "\n"
		case field == "event":
			name = value
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		}
	}
	return events
}

// FuzzTimeline feeds any bytes and states what always holds.
func FuzzTimeline(f *testing.F) {
	for _, c := range loadCases(f) {
		f.Add(c.Stream, uint16(c.Writes[0][1]))
	}
	for _, stream := range []string{
		`{"choices":[{"index":1,"text":"x"}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":-1}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":999999999}]}}]}`,
		`{"choices":[{"logprobs":{"token_logprobs":[null,1],"top_logprobs":[null]}}]}`,
		`{"usage":{"prompt_tokens":-1}}`,
		`{"error":null,"choices":null}`,
		`{"error":{}}`,
		`null`,
		`"text"`,
	} {
		f.Add([]byte("data: "+stream+"\n\n"), uint16(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		at := min(int(cut), len(stream))
		parts := slices.DeleteFunc([][]byte{stream[:at], stream[at:]}, func(p []byte) bool { return len(p) == 0 })
		got := play(parts, nil, nominal)
		require.Equal(t, got.Status == "ok", got.Err == "")
		require.Equal(t, got.FirstToken.IsZero(), len(got.Chunks) == 0)
		require.Equal(t, got.FirstToken.IsZero(), got.LastToken.IsZero())
		require.False(t, got.LastToken.Before(got.FirstToken))
		if cached, ok := got.Cached(); ok {
			require.True(t, 0 <= cached && cached <= got.Usage.PromptTokens)
		}
		for _, gap := range ChunkGaps(got) {
			require.GreaterOrEqual(t, gap, time.Duration(0))
		}
		ITL(got)
		TPOT(got)
		joined := play([][]byte{bytes.Clone(stream)}, nil, nominal)
		require.Equal(t, joined.Status, got.Status)
		require.Equal(t, joined.Text, got.Text)
	})
}
