package mini

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// A server serves one address. stop ends its goroutine.
type server struct {
	url   string
	http  http.Server
	ended chan error // of Serve

	mu       sync.Mutex
	silent   map[net.Conn]bool // connections on which no byte has come
	stopping bool
}

// serve starts a server; what goes wrong with its connections goes to problems.
func serve(ctx context.Context, addr string, h http.Handler, problems io.Writer) (*server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	s := &server{url: "http://" + reachable(listener.Addr()), ended: make(chan error, 1), silent: map[net.Conn]bool{}}
	s.http.Handler = h
	s.http.ErrorLog = log.New(problems, "http: ", log.LstdFlags|log.Lmicroseconds)
	s.http.ConnState = s.track
	go func() { s.ended <- s.http.Serve(listener) }()
	return s, nil
}

// reachable is an address to connect to: a listener on all of them is reached
// on the loopback one.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}

// track knows the connections that [http.Server.Shutdown] would wait five
// seconds for: opened by a client that has sent nothing, as clients with a
// pool do.
func (s *server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.silent, c)
		return
	}
	s.silent[c] = true
	if s.stopping {
		_ = c.Close()
	}
}

// stop refuses new connections and waits for those that are busy; when ctx
// ends first it cuts them. Serve has returned afterwards.
func (s *server) stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for c := range s.silent {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("waiting for requests at %s: %w", s.url, err), s.http.Close())
	}
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving %s: %w", s.url, ended))
	}
	return err
}
