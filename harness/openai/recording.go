package openai

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// A recording is what arrived, before anything of it is decoded: between two
// reads of a stream nothing is done but cutting events and stamping them.
type recording struct {
	events    []Event   // up to [DONE], without it
	done      bool      // [DONE] came
	firstByte time.Time // of the body; zero: none came
	end       time.Time // of [DONE], or of the body where that did not come
	err       error     // why the body ended; nil: properly
	held      int       // bytes of an event that the end cut
	head      []byte    // beginning of a body without events
}

// doneWait is how long the end of the body may take after [DONE]. The answer
// is whole by then; only the reuse of the connection is at stake.
const doneWait = time.Second

// maxHead is how much of a body without events is kept, in bytes.
const maxHead = maxMessage

// A space is what a recording is written into. Between two reads of a stream
// nothing is allocated once a space has grown to the size of an answer: what the
// collector does then delays the reads of all streams.
type space struct {
	read   [readSize]byte
	text   []byte
	events []Event
}

var spaces = sync.Pool{New: func() any { return new(space) }}

// maxRoom is the largest text, in bytes, that a space keeps for the next answer.
const maxRoom = 1 << 20

// release gives a space back; nothing of what it holds may be used any more.
func (s *space) release() {
	if cap(s.text) > maxRoom {
		s.text = nil
	}
	spaces.Put(s)
}

// record reads a body to its end, into room, which holds what is returned. It
// calls hurry when only the end itself is left to come.
func record(body io.Reader, room *space, stamp func() (time.Time, int), hurry func(time.Duration)) recording {
	head := &headReader{Reader: body}
	rec := recording{events: room.events[:0]}
	defer func() { room.events = rec.events }()
	reader := newReader(head, room.read[:], func() (time.Time, int) {
		at, read := stamp()
		if rec.firstByte.IsZero() {
			rec.firstByte = at
		}
		return at, read
	})
	reader.text = room.text[:0]
	defer func() { room.text = reader.text }()
	for {
		event, err := reader.Next()
		switch {
		case err != nil && rec.done:
			return rec
		case err != nil:
			rec.end, rec.held = time.Now(), reader.Held()
			if !errors.Is(err, io.EOF) {
				rec.err = err
			}
			if len(rec.events) == 0 {
				rec.head = head.kept
			}
			return rec
		case rec.done: // nothing counts any more
		case bytes.Equal(bytes.TrimSpace(event.Data), []byte("[DONE]")):
			rec.done, rec.end = true, event.At
			hurry(doneWait)
		default:
			rec.events = append(rec.events, event)
			head.enough = true
		}
	}
}

// A headReader keeps the beginning of what passes through it.
type headReader struct {
	io.Reader
	kept   []byte
	enough bool // nobody will ask for more
}

func (r *headReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if room := maxHead - len(r.kept); room > 0 && !r.enough {
		r.kept = append(r.kept, p[:min(n, room)]...)
	}
	return n, err
}
