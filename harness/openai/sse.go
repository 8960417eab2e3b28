package openai

import (
	"bytes"
	"io"
	"time"
)

// An Event is one dispatched event of a text/event-stream.
type Event struct {
	Name string // of the last event: line; empty: message
	ID   string // last id seen in the stream, which persists over events
	Data []byte // the data: lines, joined by \n; undecoded, not trimmed
	At   time.Time
	Read int // number of the read that completed the event, from 1
}

// A Reader cuts a stream of bytes into events as the WHATWG standard says
// (HTML, "Server-sent events", parsing an event stream): lines end at CR, LF
// or CRLF, an empty line dispatches, one blank after the colon is dropped, a
// leading byte order mark and comments are ignored, an event that the end of
// the stream cuts is not dispatched.
//
// Each event bears the time at which the read returned that brought its last
// byte. A CR dispatches at once, without waiting to see whether an LF follows.
// Lines have no limit: the first chunk of vLLM carries the whole prompt when
// return_token_ids is asked for.
//
// It is hand-written because the stamp is what the project measures: the SSE
// packages at hand hide the read behind a line scanner, most with a limit.
type Reader struct {
	src   io.Reader
	stamp func() (at time.Time, read int)
	buf   []byte // one read; the rest of it that is not parsed is buf[pos:end]
	pos   int
	end   int
	at    time.Time
	read  int
	err   error // of src, kept until the bytes before it are parsed

	line    []byte // the current line, as far as it came
	started bool   // the byte order mark was looked for
	skipLF  bool   // the last line ended with CR
	name    string
	id      string
	text    []byte // holds the data of all events, one after the other
	start   int    // of the data of the next one
	hasData bool
}

// readSize is that of the transport's buffer, so that one read of the body
// empties it.
const readSize = 8 << 10

// maxEmptyReads in a row, without bytes and without an error, end the stream.
const maxEmptyReads = 100

var byteOrderMark = []byte("\xef\xbb\xbf")

// NewReader reads events from src and asks clock for the time right after
// each read that brought bytes.
func NewReader(src io.Reader, clock func() time.Time) *Reader {
	reads := 0
	return newReader(src, make([]byte, readSize), func() (time.Time, int) {
		reads++
		return clock(), reads
	})
}

// newReader takes stamps from elsewhere, such as the connection under src,
// and a buffer, which it needs until it is no longer used.
func newReader(src io.Reader, buf []byte, stamp func() (time.Time, int)) *Reader {
	return &Reader{src: src, stamp: stamp, buf: buf}
}

// Next returns the next event. Its Data stays as it is. The error is that of
// the source, io.EOF at a proper end; all events before it come first.
func (r *Reader) Next() (Event, error) {
	for {
		for r.pos < r.end {
			if r.scan() {
				if event, ok := r.finishLine(); ok {
					return event, nil
				}
			}
		}
		if r.err != nil {
			return Event{}, r.err
		}
		r.fill()
	}
}

// fill makes one read that brings bytes or an error.
func (r *Reader) fill() {
	for range maxEmptyReads {
		n, err := r.src.Read(r.buf)
		if n > 0 {
			r.at, r.read = r.stamp()
		}
		r.pos, r.end, r.err = 0, n, err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// Held is the number of bytes that came after the last dispatched event: at
// the end of the stream, those of an event that was cut.
func (r *Reader) Held() int { return len(r.line) + len(r.text) - r.start }

// scan moves bytes into the line and reports whether it is complete.
func (r *Reader) scan() bool {
	rest := r.buf[r.pos:r.end]
	if r.skipLF {
		r.skipLF = false
		if rest[0] == '\n' {
			r.pos++
			return false
		}
	}
	at := bytes.IndexAny(rest, "\r\n")
	if at < 0 {
		r.line = append(r.line, rest...)
		r.pos = r.end
		return false
	}
	r.line = append(r.line, rest[:at]...)
	r.skipLF = rest[at] == '\r'
	r.pos += at + 1
	return true
}

// finishLine takes in the complete line and returns the event if it
// dispatches one.
func (r *Reader) finishLine() (Event, bool) {
	line := r.line
	r.line = r.line[:0]
	if !r.started {
		r.started = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	if len(line) == 0 {
		return r.dispatch()
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) { // an empty field is a comment
	case "data":
		if r.hasData {
			r.text = append(r.text, '\n')
		}
		r.hasData = true
		r.text = append(r.text, value...)
	case "event":
		r.name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	}
	return Event{}, false
}

func (r *Reader) dispatch() (Event, bool) {
	event := Event{Name: r.name, ID: r.id, Data: r.text[r.start:len(r.text):len(r.text)], At: r.at, Read: r.read}
	had := r.hasData
	r.name, r.start, r.hasData = "", len(r.text), false
	return event, had
}
