package daser

import (
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"sync"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A Store is DaseR's cache: it implements [kv.Store] for the engine and
// answers the questions of a [Server].
type Store struct {
	cfg     StoreConfig
	objects *tier.Objects
	metrics *metrics
	log     *log.Logger
	worker  sync.WaitGroup
	// beforeWrite runs in the worker between allocation and commit. Tests hold
	// it to look at the time between.
	beforeWrite func()

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever something below has changed
	committed map[tier.Key]chunk
	pending   map[tier.Key]*allocation
	queue     []*job
	writing   bool            // the worker has a job in hand
	loads     int             // calls of Load under way
	held      *job            // acknowledged and kept back by the fault EarlyAck
	lossy     map[string]bool // chunk mode: requests that run on moved KV
	slots     int             // handed out so far
	evicted   int64           // objects that the tiers had evicted when last looked at
	closed    bool
}

var _ kv.Store = (*Store)(nil)

// A chunk is what is stored as one object: a block in prefix mode, a document
// in chunk mode.
type chunk struct {
	key    tier.Key
	tokens int // a multiple of B
	slot   int // the first of its tokens/B slots
}

// An allocation is a chunk that was promised a place and is not yet visible.
type allocation struct {
	chunk
	values  []float32 // its blocks one after the other
	awaited bool      // somebody waits for the commit
	dropped bool      // evicted before it was committed
}

// A job is what one call of Store left to do.
type job struct{ allocations []*allocation }

// NewStore starts a store and its worker, which Close ends.
func NewStore(c StoreConfig) (*Store, error) { return startStore(c, func() {}) }

func startStore(c StoreConfig, beforeWrite func()) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("starting a DaseR store: %w", err)
	}
	if c.Planted == nil {
		c.Planted = func(fault.Fault) bool { return false }
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	// DaseR evicts one by one when L1 is full: no watermark.
	c.Tiers.Watermark, c.Tiers.Ratio = 1, -1
	objects, err := tier.New(c.Tiers)
	if err != nil {
		return nil, fmt.Errorf("starting a DaseR store: %w", err)
	}
	s := &Store{
		cfg: c, objects: objects, beforeWrite: beforeWrite,
		log:     log.New(c.Log, "daser: ", log.LstdFlags|log.Lmicroseconds),
		changed: make(chan struct{}), committed: map[tier.Key]chunk{}, pending: map[tier.Key]*allocation{},
		lossy: map[string]bool{},
	}
	s.metrics = newMetrics(s)
	s.worker.Go(s.write)
	return s, nil
}

// Close lets the worker commit what was allocated, ends it, and removes what
// the store wrote to disk. It may be called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.broadcast()
	s.mu.Unlock()
	s.worker.Wait()
	if err := s.objects.Close(); err != nil {
		return fmt.Errorf("closing the DaseR store: %w", err)
	}
	return nil
}

// Mode is how the store reuses KV.
func (s *Store) Mode() Mode { return s.cfg.Mode }

// Chunk is the step in which hits grow: B. A document is a multiple of it.
func (s *Store) Chunk() int { return s.cfg.BlockSize }

// Reset always fails: DaseR offers none.
func (s *Store) Reset(context.Context) error { return ErrNoReset }

// broadcast wakes everybody who waits for a change. s.mu is held.
func (s *Store) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Store allocates a place for what is to be published of r, copies it and
// leaves the rest to the worker. In prefix mode that is every whole block that
// is not there yet, in chunk mode all whole blocks as one document. A prompt
// that ran on the KV of documents that were moved is not published: its own KV
// is not that of the prompt read as a whole.
func (s *Store) Store(ctx context.Context, r kv.Request, src [][]float32) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing request %s: %w", r.ID, err)
	}
	whole := len(r.Tokens) / s.cfg.BlockSize
	if len(src) < whole {
		return fmt.Errorf("storing request %s: %d blocks of %d tokens do not hold its %d tokens", r.ID, len(src), s.cfg.BlockSize, len(r.Tokens))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("storing request %s: %w", r.ID, ErrClosed)
	}
	lossy := s.lossy[r.ID]
	delete(s.lossy, r.ID)
	if whole == 0 || lossy {
		return nil
	}
	j := &job{}
	if s.cfg.Mode == Chunk {
		s.allocate(j, chunkKey(littleEndian(r.Tokens[:whole*s.cfg.BlockSize]), r.Salt), src[:whole])
	} else {
		for i, key := range blockKeys(s.cfg.Model.Fingerprint(), r, s.cfg.BlockSize) {
			s.allocate(j, key, src[i:i+1])
		}
	}
	s.submit(j)
	return nil
}

// allocate adds an allocation to j unless the chunk is there or on its way.
// s.mu is held.
func (s *Store) allocate(j *job, key tier.Key, blocks [][]float32) {
	if s.visible(key) || s.pending[key] != nil {
		return
	}
	a := &allocation{
		chunk:  chunk{key: key, tokens: len(blocks) * s.cfg.BlockSize, slot: s.slots},
		values: slices.Concat(blocks...),
	}
	s.slots += len(blocks)
	s.pending[key] = a
	j.allocations = append(j.allocations, a)
}

// visible says whether a lookup may find a chunk: committed and, but for
// faults that say so of chunks without bytes, still in a tier. s.mu is held.
func (s *Store) visible(key tier.Key) bool {
	if _, ok := s.committed[key]; !ok {
		return false
	}
	return s.objects.Where(key) != tier.None || s.withoutBytes()
}

// withoutBytes says that a fault makes chunks visible whose bytes are not
// there.
func (s *Store) withoutBytes() bool {
	return s.cfg.Planted(fault.EarlyAck) || s.cfg.Planted(fault.EvictionAsHit)
}
