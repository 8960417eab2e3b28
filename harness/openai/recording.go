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

// buffers are for reading; events own their bytes.
var buffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// record reads a body to its end. It calls hurry when only the end itself is
// left to come.
func record(body io.Reader, stamp func() (time.Time, int), hurry func(time.Duration)) recording {
	buf := buffers.Get().(*[readSize]byte)
	defer buffers.Put(buf)
	head := &headReader{Reader: body}
	var rec recording
	reader := newReader(head, buf[:], func() (time.Time, int) {
		at, read := stamp()
		if rec.firstByte.IsZero() {
			rec.firstByte = at
		}
		return at, read
	})
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
		}
	}
}

// A headReader keeps the beginning of what passes through it.
type headReader struct {
	io.Reader
	kept []byte
}

func (r *headReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if room := maxHead - len(r.kept); room > 0 {
		r.kept = append(r.kept, p[:min(n, room)]...)
	}
	return n, err
}
