package daser

import (
	"time"

	"github.com/kvproof/kvproof/harness/mini/fault"
)

// submit hands a job to the worker. Under the fault EarlyAck its chunks are
// visible at once, and their bytes wait for the next job. s.mu is held.
func (s *Store) submit(j *job) {
	if s.held != nil {
		s.queue = append(s.queue, s.held)
		s.held = nil
	}
	switch {
	case len(j.allocations) == 0:
	case s.cfg.Planted(fault.EarlyAck):
		for _, a := range j.allocations {
			s.commit(a)
		}
		s.held = j
	default:
		s.queue = append(s.queue, j)
	}
	s.broadcast()
}

// write is the worker: one job after the other until the store is closed and
// nothing is left.
func (s *Store) write() {
	for {
		j := s.next()
		if j == nil {
			return
		}
		s.beforeWrite()
		s.finish(j)
	}
}

// next waits for a job and takes it; nil: closed and nothing left.
func (s *Store) next() *job {
	for {
		s.mu.Lock()
		if s.held != nil && s.closed {
			s.queue, s.held = append(s.queue, s.held), nil
		}
		switch {
		case len(s.queue) > 0 && !s.lingers():
			j := s.queue[0]
			s.queue, s.writing = s.queue[1:], true
			s.mu.Unlock()
			return j
		case len(s.queue) == 0 && s.closed:
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		<-changed
	}
}

// lingers says whether the fault EarlyDrain keeps the last job in the queue:
// until another one comes or somebody asks for its chunks. s.mu is held.
func (s *Store) lingers() bool {
	if len(s.queue) != 1 || s.closed || !s.cfg.Planted(fault.EarlyDrain) {
		return false
	}
	for _, a := range s.queue[0].allocations {
		if a.awaited {
			return false
		}
	}
	return true
}

// finish writes the chunks of a job and commits each. The last chunk comes
// first: so those at the start of a prompt are the more recently used ones,
// and eviction does not strand what follows them.
func (s *Store) finish(j *job) {
	start := time.Now()
	bytes, failed := 0, false
	for i := len(j.allocations) - 1; i >= 0; i-- {
		a := j.allocations[i]
		size := 4 * len(a.values)
		err := s.objects.Put(a.key, a.values)
		if err != nil {
			s.log.Printf("writing %d tokens: %v", a.tokens, err)
			failed = true
		} else {
			bytes += size
			s.metrics.chunkMoved(opStore, size)
		}
		s.settle(a, err == nil)
	}
	s.metrics.transferred(opStore, !failed, bytes, time.Since(start))
	s.mu.Lock()
	s.writing = false
	s.broadcast()
	s.mu.Unlock()
}

// settle ends an allocation: what was written becomes visible, unless it was
// evicted in the meantime.
func (s *Store) settle(a *allocation, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.dropped:
		s.objects.Delete(a.key)
		s.metrics.lateEvicted()
	case written:
		s.commit(a)
	default:
		delete(s.pending, a.key)
	}
	a.values = nil
	s.countEvictions()
	s.broadcast()
}

// commit makes a chunk visible. s.mu is held.
func (s *Store) commit(a *allocation) {
	delete(s.pending, a.key)
	if _, again := s.committed[a.key]; !again {
		s.metrics.committed()
	}
	s.committed[a.key] = a.chunk
}

// countEvictions notices what the tiers evicted by themselves. With an L2 only
// what left that one is gone. s.mu is held.
func (s *Store) countEvictions() {
	stats := s.objects.Stats()
	evictions := stats.L1.Evictions
	if s.cfg.Tiers.L2Dir != "" {
		evictions = stats.L2.Evictions
	}
	if evictions == s.evicted {
		return
	}
	s.metrics.evicted(byCapacity, int(evictions-s.evicted))
	s.evicted = evictions
	for key := range s.committed {
		if !s.visible(key) {
			delete(s.committed, key)
		}
	}
}
