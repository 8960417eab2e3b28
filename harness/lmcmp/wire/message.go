package wire

import (
	"errors"
	"fmt"
)

// EncodeRequest returns the frames of a request with that number.
func (d *Dialect) EncodeRequest(uid uint64, r Request) ([][]byte, error) {
	op, err := d.encodeOp(r.Op())
	if err != nil {
		return nil, err
	}
	number, err := Encode(uid)
	if err != nil {
		return nil, err
	}
	frames := [][]byte{number, op}
	for i, payload := range r.payloads(d) {
		frame, err := Encode(payload)
		if err != nil {
			return nil, fmt.Errorf("payload %d of %s: %w", i, r.Op(), err)
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

// A Received is a request as it came in. UID and OpFrame are what the reply
// begins with, also where the rest could not be read.
type Received struct {
	UID     []byte
	OpFrame []byte
	Request Request
}

// DecodeRequest reads the frames of a request. An error says why a server
// would drop it without an answer.
func (d *Dialect) DecodeRequest(frames [][]byte) (Received, error) {
	if len(frames) < 2 {
		return Received{}, fmt.Errorf("a message of %d frames: a request has a number and an operation", len(frames))
	}
	r := Received{UID: frames[0], OpFrame: frames[1]}
	var uid uint64
	if err := Decode(r.UID, &uid); err != nil {
		return r, fmt.Errorf("the number of the request: %w", err)
	}
	op, err := d.decodeOp(r.OpFrame)
	if err != nil {
		return r, err
	}
	request, err := NewRequest(op)
	if err != nil {
		return r, err
	}
	payloads := request.payloads(d)
	if got := len(frames) - 2; got != len(payloads) {
		return r, fmt.Errorf("%s with %d payloads: it has %d", op, got, len(payloads))
	}
	for i, payload := range payloads {
		if err := Decode(frames[2+i], payload); err != nil {
			return r, fmt.Errorf("payload %d of %s: %w", i, op, err)
		}
	}
	r.Request = request
	return r, nil
}

// Reply returns the frames that answer the request; a result of nil is left
// out, as servers do.
func (r Received) Reply(result any) ([][]byte, error) {
	frames := [][]byte{r.UID, r.OpFrame}
	if result == nil {
		return frames, nil
	}
	frame, err := Encode(result)
	return append(frames, frame), err
}

// A RemoteError is a failure that the server reported. No release up to 0.5.6
// does; newer ones have a form for it.
type RemoteError struct{ Type, Message string }

func (e *RemoteError) Error() string {
	return fmt.Sprintf("the cache server reports %s: %s", e.Type, e.Message)
}

// errorMarker is the third of the four frames of a reported error.
const errorMarker = "LMCACHE_RPC_ERROR_V1"

// A reply is a server's answer.
type reply struct {
	uid    uint64
	op     []byte
	result []byte // nil: there is none
	err    error
}

// decodeReply reads the frames of an answer.
func decodeReply(frames [][]byte) (reply, error) {
	if len(frames) < 2 || len(frames) > 4 {
		return reply{}, fmt.Errorf("a reply of %d frames", len(frames))
	}
	r := reply{op: frames[1]}
	if err := Decode(frames[0], &r.uid); err != nil {
		return reply{}, fmt.Errorf("the number of a reply: %w", err)
	}
	if len(frames) == 3 {
		r.result = frames[2]
	}
	if len(frames) == 4 {
		if string(frames[2]) != errorMarker {
			return reply{}, errors.New("a reply of 4 frames that is not an error")
		}
		var reported struct {
			Type    string `msgpack:"error_type"`
			Message string `msgpack:"message"`
		}
		if err := Decode(frames[3], &reported); err != nil {
			return reply{}, err
		}
		r.err = &RemoteError{Type: reported.Type, Message: reported.Message}
	}
	return r, nil
}

// NewResult is a pointer to what a reply to the request holds; nil: nothing.
func NewResult(r Request) any { return r.result() }
