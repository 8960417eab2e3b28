package store

import (
	"slices"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// write is the worker: it makes acknowledged chunks visible, one job after
// the other, until the store is closed and its queue is empty.
func (s *Store) write() {
	for {
		j, ok := s.next()
		if !ok {
			return
		}
		s.beforeWrite()
		s.insert(j)
	}
}

// next waits for a job and takes it; false: closed and nothing left.
func (s *Store) next() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closed {
			return job{}, false
		}
		s.wake.Wait()
	}
	j := s.queue[0]
	s.queue = s.queue[1:]
	s.inFlight++
	return j, true
}

// insert makes the chunks of j visible, in the order that the package comment
// gives. Between two chunks others get the lock, as L2 writes files; who looks
// the prompt up meanwhile finds nothing new before its first chunk is there.
// It counts before it gives up the lock for good, so that whoever sees a quiet
// /status sees the counters of all that was written.
func (s *Store) insert(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.inFlight-- }()
	if j.epoch != s.epoch {
		return
	}
	s.objects.Touch(j.keys...)
	for i, k := range slices.Backward(j.keys) {
		if j.epoch != s.epoch {
			return
		}
		s.put(j, i)
		s.objects.Touch(k)
		s.mu.Unlock()
		s.mu.Lock()
	}
	s.forgetOrigins()
}

// put stores chunk i of j, if j has its values. s.mu is held.
func (s *Store) put(j job, i int) {
	values, k := j.values[i], j.keys[i]
	if values == nil {
		return
	}
	delete(s.pending, k)
	if err := s.objects.Put(k, values); err != nil {
		s.metrics.failedChunks.Inc() // it was acknowledged: nobody else hears of it
		return
	}
	s.origins[k] = origin{salt: j.salt, start: i * s.cfg.Chunk}
	s.metrics.stored(j.salt, 4*int64(len(values)))
}

// forgetOrigins drops those of chunks that are in no tier any more, once they
// are half of all. s.mu is held.
func (s *Store) forgetOrigins() {
	stats := s.objects.Stats()
	if len(s.origins) <= 2*(stats.L1.Objects+stats.L2.Objects) {
		return
	}
	for k := range s.origins {
		if s.objects.Where(k) == tier.None {
			delete(s.origins, k)
		}
	}
}
