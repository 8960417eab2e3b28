package lmcache

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A layout is what a registration says about the KV of a model: without one
// nothing can be looked up for it.
type layout struct {
	sizes []int // bytes of a chunk, by object group
	users int   // registrations
}

type layoutKey struct {
	model string
	world int
}

// addLayout counts a registration. s.mu is held.
func (s *Server) addLayout(model string, world int, sizes []int) {
	k := layoutKey{model, world}
	if s.layouts[k] == nil {
		s.layouts[k] = &layout{sizes: sizes}
	}
	s.layouts[k].users++
	s.metrics.Load().registered(model)
}

// dropLayout takes one back. s.mu is held.
func (s *Server) dropLayout(model string, world int) {
	k := layoutKey{model, world}
	if l := s.layouts[k]; l != nil {
		if l.users--; l.users == 0 {
			delete(s.layouts, k)
		}
	}
}

// Reasons of lookups that end before anything was looked for.
const (
	noContext = "no_gpu_context"
	noChunks  = "empty_chunk_hashes"
)

// A lookup is a result that nobody has asked for yet.
type lookup struct {
	found
	requested   int // chunks
	keys        int // objects of a chunk
	earlyExit   string
	model, salt string
	session     *session
}

// sessionTTL is how long a request is remembered whose end nobody tells.
const sessionTTL = 600 * time.Second

// A session is what is known of a request until its end.
type session struct {
	rows    [][]objectKey // of its chunks
	hits    int           // chunks that its last lookup found and somebody asked for
	readers int
	begun   time.Time
}

// sessionOf is the session of a request. s.mu is held.
func (s *Server) sessionOf(request string) *session {
	if s.sessions[request] == nil {
		s.sessions[request] = &session{begun: s.now()}
		s.forgetOld()
	}
	return s.sessions[request]
}

// forgetOld drops requests that began long ago, now and then. s.mu is held.
func (s *Server) forgetOld() {
	if len(s.sessions)%1024 != 0 {
		return
	}
	now := s.now()
	for request, session := range s.sessions {
		if now.Sub(session.begun) > sessionTTL {
			delete(s.sessions, request)
			delete(s.lookups, request)
		}
	}
}

// lookup counts the leading chunks of a prompt that are there and locks them.
// Everything is done when it is answered.
func (s *Server) lookup(r *wire.Lookup) error {
	k := r.Key
	k.Worker = wire.NoWorker
	if err := s.checkKey(&k); err != nil {
		return err
	}
	l := &lookup{model: k.Model, salt: k.Salt}
	s.mu.Lock()
	known := s.layouts[layoutKey{k.Model, k.WorldSize}]
	s.mu.Unlock()
	if known == nil {
		s.log.Printf("lookup %q: nobody has registered KV of model %s with a world of %d", k.RequestID, k.Model, k.WorldSize)
		l.earlyExit = noContext
		s.keep(k.RequestID, l)
		return nil
	}
	readers := max(1, k.Readers)
	if s.dialect.ByName && k.Readers < 1 {
		return fmt.Errorf("num_kv_readers %d: at least 1; an older client has to be upgraded", k.Readers)
	}
	hashes := hashChunks(k.Tokens, s.config.Chunk, k.End)
	if len(hashes) == 0 {
		l.earlyExit = noChunks
		s.keep(k.RequestID, l)
		return nil
	}
	wanted := rows(&k, hashes, len(known.sizes))
	l.found = s.objects.lookup(wanted, known.sizes, readers)
	l.requested, l.keys = len(hashes), len(wanted[0])
	l.session = &session{rows: wanted, readers: readers, begun: s.now()}
	s.keep(k.RequestID, l)
	return nil
}

func (s *Server) keep(request string, l *lookup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups[request] = l
	if l.session != nil {
		s.sessions[request] = l.session
		s.forgetOld()
	}
}

// consume hands the result of a lookup out, once. Counters move now.
func (s *Server) consume(request string) int {
	s.mu.Lock()
	l := s.lookups[request]
	delete(s.lookups, request)
	if l != nil && l.session != nil {
		l.session.hits = l.chunks
	}
	s.mu.Unlock()
	if l == nil {
		s.log.Printf("request %q has no lookup, or was answered before", request)
		return 0
	}
	s.metrics.Load().lookedUp(l, s.config.Chunk)
	return l.chunks
}

// peek is the result of a lookup, which stays; 0 where there is none.
func (s *Server) peek(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lookups[request]; l != nil {
		return l.chunks
	}
	return 0
}

// freeLocks takes back what a lookup has locked of a range.
func (s *Server) freeLocks(r *wire.FreeLookupLocks) error {
	k := &r.Key
	if err := s.checkKey(k); err != nil {
		return err
	}
	if k.Start >= k.End || k.Start < 0 {
		return nil
	}
	s.mu.Lock()
	waiting := s.lookups[k.RequestID] != nil
	s.mu.Unlock()
	if waiting {
		s.consume(k.RequestID)
	}
	s.mu.Lock()
	session := s.sessions[k.RequestID]
	s.mu.Unlock()
	if session == nil || session.hits == 0 {
		s.log.Printf("request %q has no lookup whose locks could be freed", k.RequestID)
		return nil
	}
	c := s.config.Chunk
	first, last := k.Start/c, min(k.End/c, session.hits)
	if first >= last {
		return nil
	}
	keys := slices.Concat(session.rows[first:last]...)
	for i := range keys {
		keys[i].salt = k.Salt // of another salt nothing is locked
	}
	s.objects.free(keys, session.readers)
	return nil
}

// endSession forgets a request, whose chunks become the most recently used.
func (s *Server) endSession(request string) {
	s.mu.Lock()
	session := s.sessions[request]
	delete(s.sessions, request)
	s.mu.Unlock()
	if session == nil {
		return
	}
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	s.objects.touch(slices.Concat(session.rows...)...)
}
