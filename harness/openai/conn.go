package openai

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A stampedConn notes when each of its reads returned. The transport's own
// goroutine reads the head of an answer, often with the first token behind
// it; a stamp taken later, where the body is read, would add the hand-over
// between the goroutines to TTFT.
type stampedConn struct {
	net.Conn
	mu      sync.Mutex
	current *exchange
}

// An exchange holds the stamps of one request on a connection. It stands
// still once the next request begins, so that the next answer, which another
// worker may be reading already, cannot move them.
type exchange struct {
	conn  *stampedConn
	at    time.Time // when the last read that brought bytes returned
	reads int       // reads that brought bytes
}

// begin starts the exchange of the next request.
func (c *stampedConn) begin() *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = &exchange{conn: c}
	return c.current
}

func (c *stampedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := time.Now()
		c.mu.Lock()
		if c.current != nil {
			c.current.at = now
			c.current.reads++
		}
		c.mu.Unlock()
	}
	return n, err
}

// stamp is that of the last read. Bytes of a body that come out of the
// transport's buffer came with it: the transport reads the connection only
// when its buffer is empty.
func (e *exchange) stamp() (time.Time, int) {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	return e.at, e.reads
}

// stamped is the stampedConn under what httptrace reports: the connection
// itself, or TLS over it. Every connection comes from the dialer of
// newTransport, so there is one.
func stamped(conn net.Conn) *stampedConn {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	return conn.(*stampedConn)
}
