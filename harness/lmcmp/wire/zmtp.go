package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	greetingSize = 64
	// maxMessage bounds what a peer can make us keep: the largest messages are
	// prompts, a few bytes per token.
	maxMessage       = 256 << 20
	maxFrames        = 1024
	handshakeTimeout = 5 * time.Second
)

// ErrNotZMTP says that the peer speaks something else.
var ErrNotZMTP = errors.New("the peer does not speak ZMTP 3 with the NULL mechanism")

// A Conn is one connection on which messages of frames travel both ways. One
// goroutine may send while another receives.
type Conn struct {
	conn net.Conn

	writing sync.Mutex
	out     []byte

	in      []byte // received and not yet consumed; a deadline loses nothing
	partial [][]byte
	size    int // bytes of partial
}

// Dial connects to a ROUTER, as a DEALER with an empty identity. The endpoint
// is tcp://host:port, or host:port.
func Dial(ctx context.Context, endpoint string) (*Conn, error) {
	address, err := Address(endpoint)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cache server: %w", err)
	}
	c, err := newConn(ctx, conn, "DEALER")
	if err != nil {
		return nil, fmt.Errorf("connecting to the cache server at %s: %w", address, err)
	}
	return c, nil
}

// Address is the host:port of an endpoint as LMCache's clients spell it. It
// must be complete: tcp://host:port, or without the scheme.
func Address(endpoint string) (string, error) {
	scheme, address, found := strings.Cut(endpoint, "://")
	if !found {
		scheme, address = "tcp", endpoint
	}
	if scheme != "tcp" {
		return "", fmt.Errorf("cache server %q: only tcp:// is spoken, not %s://", endpoint, scheme)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("cache server %q: want tcp://host:port", endpoint)
	}
	return address, nil
}

// Accept makes the ROUTER's end of a connection that a listener has accepted.
// It takes the connection over, also when it fails.
func Accept(ctx context.Context, conn net.Conn) (*Conn, error) { return newConn(ctx, conn, "ROUTER") }

// newConn greets the peer. It closes conn when it fails.
func newConn(ctx context.Context, conn net.Conn, socketType string) (*Conn, error) {
	deadline := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c := &Conn{conn: conn}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := errors.Join(conn.SetDeadline(deadline), c.handshake(socketType))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, conn.SetDeadline(time.Time{})
}

// handshake is ZMTP 3.0 with NULL security: greetings, then a READY command
// each way.
func (c *Conn) handshake(socketType string) error {
	greeting := make([]byte, greetingSize)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:32], "NULL")
	ready := []byte("\x05READY")
	for _, property := range [][2]string{{"Socket-Type", socketType}, {"Identity", ""}} {
		ready = append(ready, byte(len(property[0])))
		ready = append(ready, property[0]...)
		ready = binary.BigEndian.AppendUint32(ready, uint32(len(property[1])))
		ready = append(ready, property[1]...)
	}
	if _, err := c.conn.Write(greeting); err != nil {
		return fmt.Errorf("sending the greeting: %w", err)
	}
	for len(c.in) < greetingSize {
		if err := c.fill(); err != nil {
			return fmt.Errorf("waiting for the greeting: %w", err)
		}
		if c.in[0] != 0xff {
			return ErrNotZMTP
		}
	}
	peer := c.in[:greetingSize]
	if peer[9] != 0x7f || peer[10] < 3 || !strings.HasPrefix(string(peer[12:32]), "NULL\x00") {
		return ErrNotZMTP
	}
	c.in = c.in[greetingSize:]
	if _, err := c.conn.Write(appendFrame(nil, flagCommand, ready)); err != nil {
		return fmt.Errorf("sending the handshake: %w", err)
	}
	for {
		flags, body, ok, err := c.frame()
		switch {
		case err != nil:
			return err
		case !ok:
			if err := c.fill(); err != nil {
				return fmt.Errorf("waiting for the handshake: %w", err)
			}
		case flags&flagCommand == 0 || !strings.HasPrefix(string(body), "\x05READY"):
			return fmt.Errorf("%w: it answered the handshake with %q", ErrNotZMTP, body)
		default:
			return nil
		}
	}
}

// fill reads once more from the peer.
func (c *Conn) fill() error {
	c.in = slices.Grow(c.in, 16<<10)
	n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

// frame takes the next frame off what was received; ok says whether it is
// there in full. The body is valid until the next fill.
func (c *Conn) frame() (flags byte, body []byte, ok bool, err error) {
	if len(c.in) < 2 {
		return 0, nil, false, nil
	}
	flags = c.in[0]
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, nil, false, fmt.Errorf("%w: a frame has the flags %#x", ErrNotZMTP, flags)
	}
	header, size := 2, uint64(c.in[1])
	if flags&flagLong != 0 {
		if header = 9; len(c.in) < header {
			return 0, nil, false, nil
		}
		size = binary.BigEndian.Uint64(c.in[1:header])
	}
	if size > maxMessage {
		return 0, nil, false, fmt.Errorf("receiving a frame of %d bytes: more than %d are refused", size, maxMessage)
	}
	end := header + int(size)
	if len(c.in) < end {
		return 0, nil, false, nil
	}
	body, c.in = c.in[header:end], c.in[end:]
	return flags, body, true, nil
}

// Receive returns the frames of the next message. After a deadline set with
// SetReadDeadline it can be called again and goes on where it was.
func (c *Conn) Receive() ([][]byte, error) {
	for {
		flags, body, ok, err := c.frame()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			if err := c.fill(); err != nil {
				return nil, err
			}
		case flags&flagCommand != 0:
			if err := c.command(body); err != nil {
				return nil, err
			}
		default:
			if c.size += len(body); c.size > maxMessage || len(c.partial) == maxFrames {
				return nil, fmt.Errorf("receiving a message of %d frames and %d bytes so far: more is refused", len(c.partial)+1, c.size)
			}
			c.partial = append(c.partial, slices.Clone(body))
			if flags&flagMore == 0 {
				message := c.partial
				c.partial, c.size = nil, 0
				return message, nil
			}
		}
	}
}

// command answers a heartbeat; other commands need no answer.
func (c *Conn) command(body []byte) error {
	const ping, ttl = "\x04PING", 2
	if !strings.HasPrefix(string(body), ping) || len(body) < len(ping)+ttl {
		return nil
	}
	pong := append([]byte("\x04PONG"), body[len(ping)+ttl:]...)
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.conn.Write(appendFrame(nil, flagCommand, pong))
	return err
}

// Send writes one message in one piece. After an error the connection is of no
// further use, since a part of the message may be on its way.
func (c *Conn) Send(frames [][]byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = c.out[:0]
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		c.out = appendFrame(c.out, flags, f)
	}
	_, err := c.conn.Write(c.out)
	return err
}

func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	}
	return append(b, body...)
}

// SetReadDeadline bounds Receive; the zero time lifts the bound.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SetWriteDeadline bounds Send; the zero time lifts the bound.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// RemoteAddr is where the peer is.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Close ends the connection at once; what is in flight is lost.
func (c *Conn) Close() error { return c.conn.Close() }
