package lmcache

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/fault"
)

// How long faults hold replies back, and how long a client may take to read.
const (
	slowness     = 300 * time.Millisecond
	overtaking   = 20 * time.Millisecond
	writeTimeout = 10 * time.Second
)

// A peer is one connection.
type peer struct {
	conn *wire.Conn
	lane int // of its transfers; -1: it has made none

	mu   sync.Mutex
	held [][]byte // a reply that waits to be overtaken
}

// A task is a request that a thread is to carry out.
type task struct {
	peer     *peer
	received wire.Received
}

// accept takes connections until the listener is closed.
func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.log.Printf("accepting connections: %v", err)
			}
			return
		}
		s.reading.Go(func() { s.serve(conn) })
	}
}

// serve reads requests until the connection ends.
func (s *Server) serve(conn net.Conn) {
	c, err := wire.Accept(s.ctx, conn)
	if err != nil {
		s.log.Printf("connection from %s: %v", conn.RemoteAddr(), err)
		return
	}
	p := &peer{conn: c, lane: -1}
	defer func() { _ = c.Close() }()
	s.mu.Lock()
	s.peers[p] = true
	gone := s.dead || s.ctx.Err() != nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.peers, p)
	}()
	for !gone {
		frames, err := c.Receive()
		if err != nil {
			return // it has left, or was cut
		}
		received, err := s.dialect.DecodeRequest(frames)
		if err != nil {
			s.drop(p, received, err)
			continue
		}
		if !s.dispatch(task{p, received}) {
			return
		}
	}
}

// drop logs why a request is not answered: the only diagnosis there is.
func (s *Server) drop(p *peer, r wire.Received, why error) {
	about := "a message"
	if r.Request != nil {
		about = string(r.Request.Op())
	}
	s.log.Printf("dropped %s (request % x) of %s: %v", about, r.UID, p.conn.RemoteAddr(), why)
}

// dispatch gives a request to who carries it out: registrations here, in the
// loop of the connection, transfers in the connection's lane, the rest in any
// thread. It returns false when the server has ended.
func (s *Server) dispatch(t task) bool {
	queue := s.threads
	switch t.received.Request.(type) {
	case *wire.RegisterKVCache, *wire.UnregisterKVCache, *wire.RegisterEngineDriven, *wire.UnregisterEngineDriven,
		*wire.GetChunkSize, *wire.Noop:
		s.carryOut(t)
		return true
	case *wire.Store, *wire.Retrieve, *wire.PrepareStore, *wire.CommitStore, *wire.PrepareRetrieve, *wire.CommitRetrieve:
		queue = s.laneOf(t.peer)
	}
	select {
	case queue <- t:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// laneOf is where the transfers of a connection are worked off one after the
// other: the next lane in turn when it makes the first.
func (s *Server) laneOf(p *peer) chan task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.lane < 0 {
		p.lane = s.nextLane
		s.nextLane = (s.nextLane + 1) % len(s.lanes)
	}
	return s.lanes[p.lane]
}

// work carries requests out until the server ends.
func (s *Server) work(queue <-chan task) {
	for {
		select {
		case t := <-queue:
			s.carryOut(t)
		case <-s.ctx.Done():
			return
		}
	}
}

// carryOut does what a request asks for and answers it, or says why not.
func (s *Server) carryOut(t task) {
	if s.strike(t.received.Request) {
		return
	}
	result, err := s.answer(t.received.Request)
	if err != nil {
		s.drop(t.peer, t.received, err)
		return
	}
	frames, err := t.received.Reply(result)
	if err != nil {
		s.drop(t.peer, t.received, err)
		return
	}
	s.reply(t, frames)
}

// strike lets the faults act that change the server itself. It returns true
// when the request has nobody left to answer it.
func (s *Server) strike(r wire.Request) bool {
	switch r := r.(type) {
	case *wire.Lookup:
		s.mu.Lock()
		due := s.stored
		s.mu.Unlock()
		if due && s.strikes(Die) {
			s.Kill()
			return true
		}
		if due && s.strikes(Restart) {
			if err := s.Restart(); err != nil {
				s.log.Printf("restarting: %v", err)
			}
			return true
		}
	case *wire.Retrieve:
		if s.strikes(UnregisterMidFlight) {
			s.unregisterPaged(r.Instance)
		}
	case *wire.PrepareRetrieve:
		if s.strikes(UnregisterMidFlight) {
			s.unregisterEngine(r.Instance)
		}
	}
	return s.Dead()
}

// reply sends an answer, as the faults will have it.
func (s *Server) reply(t task, frames [][]byte) {
	if !aboutPrompt(t.received.Request) {
		s.send(t.peer, frames)
		return
	}
	switch t.received.Request.(type) {
	case *wire.Retrieve, *wire.PrepareRetrieve:
		if s.has(NoReply) {
			s.drop(t.peer, t.received, fmt.Errorf("fault %s is planted", NoReply))
			return
		}
		if s.has(WrongArity) {
			frames = append(frames, frames[len(frames)-1])
		}
	}
	if s.has(SlowReply) {
		fault.Wait(s.ctx, slowness)
	}
	if s.has(OutOfOrder) {
		s.overtake(t.peer, frames)
		return
	}
	s.send(t.peer, frames)
	if s.has(DuplicateReply) {
		s.send(t.peer, frames)
	}
}

// overtake holds a reply back until another one has been sent, or for a moment.
func (s *Server) overtake(p *peer, frames [][]byte) {
	p.mu.Lock()
	earlier := p.held
	p.held = nil
	if earlier == nil {
		p.held = frames
	}
	p.mu.Unlock()
	if earlier != nil {
		s.send(p, frames)
		s.send(p, earlier)
		return
	}
	s.working.Go(func() {
		fault.Wait(s.ctx, overtaking)
		p.mu.Lock()
		mine := len(p.held) > 0 && &p.held[0] == &frames[0]
		if mine {
			p.held = nil
		}
		p.mu.Unlock()
		if mine {
			s.send(p, frames)
		}
	})
}

// send writes to a client; one that does not read is cut.
func (s *Server) send(p *peer, frames [][]byte) {
	err := errors.Join(p.conn.SetWriteDeadline(time.Now().Add(writeTimeout)), p.conn.Send(frames))
	if err != nil {
		_ = p.conn.Close()
	}
}

// aboutPrompt says whether a request has a key.
func aboutPrompt(r wire.Request) bool {
	switch r.(type) {
	case *wire.Lookup, *wire.FreeLookupLocks, *wire.Store, *wire.Retrieve,
		*wire.PrepareStore, *wire.CommitStore, *wire.PrepareRetrieve, *wire.CommitRetrieve:
		return true
	}
	return false
}
