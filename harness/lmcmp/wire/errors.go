package wire

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrClosed says that the dealer has been closed.
var ErrClosed = errors.New("the connection to the cache server has been closed")

// ErrMalformed says that the server answered something that is no reply.
var ErrMalformed = errors.New("malformed reply")

// A TimeoutError says that a call was not answered in time. It is all that a
// server does about a request that it refuses.
type TimeoutError struct {
	Op       Op
	UID      uint64
	Patience time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s (request %d) was not answered within %v: the server dropped it, is busy or is dead; its log says why it dropped one", e.Op, e.UID, e.Patience)
}

// Timeout makes it a net.Error's kind of error.
func (e *TimeoutError) Timeout() bool { return true }

// A LostError says that the connection broke while a call was waiting.
type LostError struct {
	Op  Op
	Err error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s: the connection to the cache server was lost: %v", e.Op, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// IsTimeout says whether err is one of a call that was not answered in time.
func IsTimeout(err error) bool {
	var timeout *TimeoutError
	var network net.Error
	return errors.As(err, &timeout) || errors.As(err, &network) && network.Timeout()
}

var errPatience = errors.New("patience has ended")
