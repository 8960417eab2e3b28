package daser

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// Has says whether a chunk is visible. It counts nothing.
func (s *Store) Has(key tier.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visible(key)
}

// Await waits until a chunk is visible. It returns ErrNotStored where that
// will not come: the chunk is neither stored nor on its way.
func (s *Store) Await(ctx context.Context, key tier.Key) error {
	for {
		s.mu.Lock()
		if s.visible(key) {
			s.mu.Unlock()
			return nil
		}
		a := s.pending[key]
		if a == nil {
			s.mu.Unlock()
			return fmt.Errorf("waiting for the commit of %s: %w", key, ErrNotStored)
		}
		if !a.awaited {
			a.awaited = true
			s.broadcast()
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the commit of %s: %w", key, ctx.Err())
		}
	}
}

// Drain waits until nothing is being transferred and nothing is left to be
// committed: what is allocated is in the queue or in the worker's hands. Under the fault EarlyDrain it does not.
func (s *Store) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.broadcast() // a job that lingered for a fault that is gone goes on
	s.mu.Unlock()
	for !s.cfg.Planted(fault.EarlyDrain) {
		s.mu.Lock()
		busy := s.writing || len(s.queue) > 0 || s.loads > 0
		left := len(s.pending)
		changed := s.changed
		s.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d uncommitted chunks: %w", left, ctx.Err())
		}
	}
	return nil
}

// Evict removes chunks on demand and returns how many of them were stored.
// What is still on its way is dropped when it arrives.
func (s *Store) Evict(keys ...tier.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	evicted := 0
	for _, key := range keys {
		if a := s.pending[key]; a != nil {
			a.dropped = true
			delete(s.pending, key)
		}
		if _, ok := s.committed[key]; !ok {
			continue
		}
		evicted += s.objects.Delete(key)
		if !s.cfg.Planted(fault.EvictionAsHit) {
			delete(s.committed, key)
		}
	}
	if evicted > 0 {
		s.metrics.evicted(onDemand, evicted)
	}
	s.broadcast()
	return evicted
}
