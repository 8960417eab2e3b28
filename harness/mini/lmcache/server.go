package lmcache

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A Server is a running cache server. All methods are safe for concurrent use.
type Server struct {
	config  Config
	dialect *wire.Dialect
	log     *log.Logger
	now     func() time.Time
	objects *objects
	metrics atomic.Pointer[metrics]

	listener net.Listener
	web      *web // nil: no HTTP of its own

	ctx      context.Context // ends with Close
	end      context.CancelFunc
	reading  sync.WaitGroup // the listener and its connections
	working  sync.WaitGroup // threads, lanes and replies that a fault holds back
	storing  sync.WaitGroup // what makes stores readable
	writing  sync.WaitGroup // what writes them to L2
	threads  chan task
	lanes    []chan task
	visible  *storeQueue
	closing  sync.Once
	closeErr error

	mu       sync.Mutex
	planted  map[Fault]bool
	stored   bool // something was stored since faults were planted
	dead     bool
	peers    map[*peer]bool
	nextLane int
	paged    map[int]*paged
	engines  map[int]*engine
	layouts  map[layoutKey]*layout
	lookups  map[string]*lookup // by request, not yet asked for
	sessions map[string]*session
	writes   map[transferKey]*pendingWrite
	reads    map[transferKey][]*pendingRead
}

// Start serves until Close; the ports accept connections when it returns. ctx
// ends the start only.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("starting a cache server: %w", err)
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("starting a cache server: %w", err)
	}
	s := &Server{config: c, now: time.Now, planted: map[Fault]bool{}, peers: map[*peer]bool{}}
	s.log = log.New(c.Log, "cache server: ", log.LstdFlags|log.Lmicroseconds)
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a cache server: %w", err), s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	c := s.config
	if s.dialect, err = wire.ForVersion(c.Version); err != nil {
		return err
	}
	for _, f := range c.Faults {
		s.planted[f] = true
	}
	s.forget()
	var d *disk
	if c.L2Dir != "" {
		if d, err = openDisk(c.L2Dir, c.L2Bytes); err != nil {
			return err
		}
	}
	m, err := newMemory(c)
	if err != nil {
		return err
	}
	s.objects = newObjects(c, m, d, s.log.Printf)
	s.metrics.Store(newMetrics(s))
	s.visible = newStoreQueue()
	s.writing.Go(s.objects.work)
	s.storing.Go(s.makeVisible)
	s.threads = make(chan task)
	for range c.Workers {
		s.working.Go(func() { s.work(s.threads) })
	}
	for range c.TransferWorkers {
		lane := make(chan task)
		s.lanes = append(s.lanes, lane)
		s.working.Go(func() { s.work(lane) })
	}
	var listening net.ListenConfig
	if s.listener, err = listening.Listen(ctx, "tcp", c.Addr); err != nil {
		return fmt.Errorf("listening on %s: %w", c.Addr, err)
	}
	s.reading.Go(s.accept)
	if c.HTTPAddr != "" {
		if s.web, err = serveWeb(ctx, c.HTTPAddr, s.Handler(), s.log); err != nil {
			return err
		}
	}
	return nil
}

// forget makes the state of a server that nobody has spoken to. s.mu is held,
// or nobody else is there.
func (s *Server) forget() {
	s.paged, s.engines, s.layouts = map[int]*paged{}, map[int]*engine{}, map[layoutKey]*layout{}
	s.lookups, s.sessions = map[string]*lookup{}, map[string]*session{}
	s.writes, s.reads = map[transferKey]*pendingWrite{}, map[transferKey][]*pendingRead{}
}

// Endpoint is where clients find the wire: tcp://host:port.
func (s *Server) Endpoint() string { return "tcp://" + reachable(s.listener.Addr()) }

// URL is the base of the HTTP side, without a slash at its end; empty: it has
// none of its own.
func (s *Server) URL() string {
	if s.web == nil {
		return ""
	}
	return s.web.url
}

// Dialect is what the server speaks.
func (s *Server) Dialect() *wire.Dialect { return s.dialect }

// Chunk is the number of tokens in a chunk.
func (s *Server) Chunk() int { return s.config.Chunk }

// Open returns the pool of that name as a client in this process sees it, also
// where there is no shared memory.
func (s *Server) Open(name string, size int) ([]byte, error) {
	m := s.objects.memory
	if name != s.poolName() || size != len(m.bytes) {
		return nil, fmt.Errorf("opening pool %q of %d bytes: this server's is %q of %d", name, size, s.poolName(), len(m.bytes))
	}
	return m.bytes, nil
}

// Shared says whether the pool is in shared memory.
func (s *Server) Shared() bool { return s.objects.memory.segment != nil }

// poolName is what clients are told. A pool in private memory has a name, too,
// under which nobody else finds it.
func (s *Server) poolName() string {
	if name := s.objects.memory.name; name != "" {
		return name
	}
	return fmt.Sprintf("private_%p", s)
}

// reachable is an address to connect to: a listener on all of them is reached
// on the loopback one.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}

// Kill lets the server die as a process does: connections are cut, its ports
// are closed, nothing is written any more. Close still has to be called.
func (s *Server) Kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	_ = s.listener.Close()
	s.cut()
	if s.web != nil {
		_ = s.web.http.Close()
	}
}

// Dead says whether the server has died.
func (s *Server) Dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// Restart lets the server begin anew on the same ports: connections are cut,
// L1, registrations and counters are gone; L2 stays.
func (s *Server) Restart() error {
	s.cut()
	s.mu.Lock()
	clients, reads := s.paged, s.reads
	s.forget()
	s.mu.Unlock()
	for _, pending := range reads {
		for _, read := range pending {
			s.endRead(read, false)
		}
	}
	var failed []error
	for _, p := range clients {
		failed = append(failed, p.close())
	}
	s.objects.reset()
	s.metrics.Store(newMetrics(s))
	return errors.Join(failed...)
}

// cut closes all connections.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		_ = p.conn.Close()
	}
}

// Close ends connections, makes readable what was acknowledged, writes it to
// L2, and leaves nothing in shared memory. ctx bounds how long running HTTP
// requests may take. A second call returns the result of the first.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Server) close(ctx context.Context) error {
	var failed []error
	s.end()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.cut()
	if s.web != nil {
		failed = append(failed, s.web.stop(ctx))
	}
	s.reading.Wait()
	s.working.Wait()
	if s.visible != nil {
		s.visible.close()
	}
	s.storing.Wait()
	if s.objects != nil {
		s.objects.stop() // nothing becomes readable any more
		s.writing.Wait()
	}
	s.mu.Lock()
	clients := s.paged
	s.forget()
	s.mu.Unlock()
	for _, p := range clients {
		failed = append(failed, p.close())
	}
	if s.objects != nil {
		failed = append(failed, s.objects.memory.close())
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("closing the cache server: %w", err)
	}
	return nil
}
