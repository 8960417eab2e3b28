package store

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

// insert makes the chunks of j visible and evicts what no longer fits. It
// counts before it gives up the lock, so that whoever sees a quiet /status
// sees the counters of all that was written.
func (s *Store) insert(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if j.epoch != s.epoch {
		return
	}
	// Last chunk first: the chunks at the start of a prompt become the more
	// recent ones. Evicting them first would strand those that follow.
	evicted := 0
	for i := len(j.chunks) - 1; i >= 0; i-- {
		c := &j.chunks[i]
		delete(s.pending, c.key)
		size := 4 * int64(len(c.values))
		for s.used+size > s.cfg.Capacity && s.recent.Len() > 0 {
			s.evict()
			evicted++
		}
		if s.used+size > s.cfg.Capacity {
			continue
		}
		s.chunks[c.key] = s.recent.PushFront(c)
		s.used += size
		s.metrics.stored(c.salt, size)
	}
	s.metrics.evicted(evicted)
}

// evict drops the least recently used chunk. s.mu is held.
func (s *Store) evict() {
	oldest := s.recent.Back()
	c := s.recent.Remove(oldest).(*chunk)
	delete(s.chunks, c.key)
	s.used -= 4 * int64(len(c.values))
}

// touch makes the stored ones of keys the most recently used, the first key
// most of all. s.mu is held.
func (s *Store) touch(keys []key) {
	for i := len(keys) - 1; i >= 0; i-- {
		if e := s.chunks[keys[i]]; e != nil {
			s.recent.MoveToFront(e)
		}
	}
}
