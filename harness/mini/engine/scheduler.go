package engine

import (
	"context"
	"time"
)

// submit takes requests into the queue, all or none.
func (e *Engine) submit(sequences []*sequence) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(); err != nil {
		return err
	}
	for _, s := range sequences {
		e.active[s] = struct{}{}
		// Those that run watch their context themselves.
		s.unwatch = context.AfterFunc(s.ctx, func() { e.dropWaiting(s) })
	}
	e.waiting = append(e.waiting, sequences...)
	e.admit()
	return nil
}

// admit starts waiting sequences in order of arrival, as many as there are
// places and blocks for; the lock is held. A sequence that does not fit yet
// holds up those behind it.
func (e *Engine) admit() {
	for len(e.waiting) > 0 && e.running < e.config.MaxSeqs {
		s := e.waiting[0]
		blocks, hits := e.pool.reserve(s.reusable(e.config.BlockSize), s.blocksNeeded(e.config.BlockSize))
		if blocks == nil {
			return
		}
		s.blocks, s.local = blocks, hits*e.config.BlockSize
		s.published = hits
		s.scheduled = time.Now()
		e.waiting = e.waiting[1:]
		e.running++
		e.metrics.admitted(len(s.prompt), s.local)
		go e.run(s) // ends with the sequence, or soon after its context does
	}
}

// dropWaiting removes a sequence whose context ended before it ran.
func (e *Engine) dropWaiting(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, w := range e.waiting {
		if w == s {
			e.waiting = append(e.waiting[:i:i], e.waiting[i+1:]...)
			e.retire(s)
			s.send(output{err: context.Cause(s.ctx)})
			return
		}
	}
}

// finish gives back what a running sequence held and lets the next one start.
// It comes before the client can see the last token, so that a reset or a
// scrape right after the answer finds the engine at rest.
func (e *Engine) finish(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool.release(s.blocks)
	e.running--
	e.retire(s)
}

// retire forgets a sequence that has left the queue or ended; the lock is held.
func (e *Engine) retire(s *sequence) {
	delete(e.active, s)
	s.unwatch()
	e.closeIfIdle()
	e.admit()
}

// closeIfIdle tells Shutdown that the last sequence has ended; the lock is held.
func (e *Engine) closeIfIdle() {
	if e.idle == nil || len(e.active) > 0 {
		return
	}
	select {
	case <-e.idle:
	default:
		close(e.idle)
	}
}

// load is what the gauges of /metrics show.
type load struct {
	running, waiting, loading int
	kvUsage                   float64 // share of the pool that is referred to
}

func (e *Engine) load() load {
	e.mu.Lock()
	defer e.mu.Unlock()
	return load{e.running, len(e.waiting), e.loading, float64(e.pool.used()) / float64(e.pool.size)}
}
