package fault

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

// WrapStore returns s with the faults of the store that are planted at the
// time of each call. s itself stays healthy: its counters tell the truth.
func (i *Injector) WrapStore(s kv.Store) kv.Store {
	return &faultyStore{inner: s, injector: i, found: map[string]int{}}
}

type faultyStore struct {
	inner    kv.Store
	injector *Injector

	mu    sync.Mutex
	found map[string]int // by request id: what was really found, where a hit was reported too long
	last  *contents      // the last load of another prompt, for OtherRequest
	held  *contents      // what LateStore has not yet forwarded
	kept  []*contents    // what was stored, of each prompt once, for SwappedObjects
	worn  []kv.Request   // what was loaded, for SecondHit
}

// contents are KV that the wrapper keeps beyond a call.
type contents struct {
	request kv.Request
	blocks  [][]float32
}

func keep(r kv.Request, blocks [][]float32) *contents {
	c := &contents{request: r, blocks: make([][]float32, len(blocks))}
	for i, b := range blocks {
		c.blocks[i] = slices.Clone(b)
	}
	return c
}

func (s *faultyStore) Chunk() int { return s.inner.Chunk() }

// Lookup lies about the length of a hit. A miss stays one, so that the fault
// is one of length and not of content.
func (s *faultyStore) Lookup(ctx context.Context, r kv.Request) (int, error) {
	if s.injector.Has(IdleStore) {
		return 0, nil
	}
	if s.injector.Has(HitPlusOneToken) || s.injector.Has(HitPlusOneBlock) {
		r.Computed = 0 // what is made longer may be loaded after all
	}
	n, err := s.inner.Lookup(ctx, r)
	if err != nil || n == 0 {
		return n, err
	}
	reported := n
	switch {
	case s.injector.Has(HitPlusOneToken):
		reported = n + 1
	case s.injector.Has(HitPlusOneBlock):
		reported = n + s.Chunk()
	case s.injector.Has(HitMinusOneToken):
		// An engine never uses the KV of the last token: count from what it uses.
		reported = min(n, len(r.Tokens)-1) - 1
	case s.injector.Has(HitMinusOneBlock):
		reported = n - s.Chunk()
	}
	reported = max(0, min(reported, len(r.Tokens)))
	if reported > n {
		s.mu.Lock()
		s.found[r.ID] = n
		s.mu.Unlock()
	}
	return reported, nil
}

// Load delivers what is there and then damages it. Of tokens that were
// promised and do not exist, dst stays as it was.
func (s *faultyStore) Load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) error {
	there := tokens
	s.mu.Lock()
	if n, lied := s.found[r.ID]; lied {
		there = min(n, tokens)
		delete(s.found, r.ID)
	}
	s.mu.Unlock()
	if err := s.inner.Load(ctx, r, there, dst); err != nil {
		return err
	}
	if s.injector.Has(SlowLoad) {
		timer := time.NewTimer(loadDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.injector.Has(OtherRequest) {
		s.exchange(r, there, dst)
	}
	if s.injector.Has(SwappedObjects) {
		s.swap(r, dst)
	}
	if s.injector.Has(FailedStore) {
		for _, block := range dst[len(dst)/2:] {
			clear(block)
		}
	}
	if s.injector.Has(FullHitSkipsLast) && tokens == len(r.Tokens)-1 && len(r.Tokens)%s.Chunk() == 0 {
		s.injector.forget(tokens-1, dst)
	}
	s.injector.damage(there, dst, s.injector.Has(SecondHit) && s.loadedBefore(r))
	return nil
}

// exchange puts the KV of the last load of another prompt into dst. KV of the
// same tokens would change nothing, so a load of those is left alone.
func (s *faultyStore) exchange(r kv.Request, tokens int, dst [][]float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last
	if last != nil && slices.Equal(head(last.request.Tokens, tokens), head(r.Tokens, tokens)) {
		return
	}
	s.last = keep(r, dst)
	if last == nil {
		return
	}
	for i := range min(len(dst), len(last.blocks)) {
		copy(dst[i], last.blocks[i])
	}
}

// swap puts the KV of the prompt that was stored beside r's into dst: of the
// first one stored the second's, of the second the first's, and so on.
func (s *faultyStore) swap(r kv.Request, dst [][]float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.kept, func(c *contents) bool { return slices.Equal(c.request.Tokens, r.Tokens) })
	if at < 0 || at^1 >= len(s.kept) {
		return
	}
	partner := s.kept[at^1].blocks
	for i := range min(len(dst), len(partner)) {
		copy(dst[i], partner[i])
	}
}

// loadedBefore says whether the prompt was loaded once, and remembers it.
func (s *faultyStore) loadedBefore(r kv.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := slices.ContainsFunc(s.worn, func(w kv.Request) bool { return slices.Equal(w.Tokens, r.Tokens) })
	if !before {
		s.worn = append(s.worn, r)
	}
	return before
}

func head(tokens []int32, n int) []int32 { return tokens[:min(n, len(tokens))] }

// Store loses what it acknowledges, or forwards it only with the next one.
func (s *faultyStore) Store(ctx context.Context, r kv.Request, src [][]float32) error {
	if s.injector.Has(LostStore) || s.injector.Has(IdleStore) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.injector.Has(SwappedObjects) {
		s.kept = append(s.kept, keep(r, src))
	}
	var late error
	if s.held != nil {
		late = s.inner.Store(ctx, s.held.request, s.held.blocks)
		s.held = nil
	}
	if s.injector.Has(LateStore) {
		s.held = keep(r, src)
		return late
	}
	return errors.Join(late, s.inner.Store(ctx, r, src))
}

func (s *faultyStore) Reset(ctx context.Context) error {
	s.mu.Lock()
	s.held, s.worn = nil, nil
	s.mu.Unlock()
	return s.inner.Reset(ctx)
}
