// Package store is an in-memory KV store behind the miniature engine: the
// part that LMCache's multiprocess server plays behind vLLM. It keeps whole
// chunks of C tokens under chained hashes, writes them a little later than it
// acknowledges them, as LMCache does, and shows LMCache's status and counters
// over HTTP, so that the harness reads it with the code that reads the real
// one. Its wire to the engine is a Go call.
//
//	s, err := store.New(store.Config{
//		Chunk: 128, BlockSize: 128, BlockLen: m.BlockLen(128),
//		Capacity: 2 << 30, ModelName: "mini", Fingerprint: m.Fingerprint(),
//	})
//	defer s.Close()
//	e, err := engine.New(engine.Config{Store: s, ...})
//	go http.Serve(listener, s.Handler())
package store

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

// ErrClosed says that the store has been closed.
var ErrClosed = errors.New("store is closed")

// A Config describes a store and the model whose KV it keeps.
type Config struct {
	Chunk       int    // C, tokens per chunk: a multiple of BlockSize
	BlockSize   int    // tokens in a block of the engine
	BlockLen    int    // float32 values in such a block: all layers, K and V
	Capacity    int64  // bytes of KV at most; the least recently used chunks go first
	ModelName   string // label of the lookup counters
	Fingerprint string // of the weights: KV of other weights never hits
}

// A Store implements [kv.Store] in memory. Memory is taken as chunks come, not
// at the start.
type Store struct {
	cfg     Config
	blocks  int // engine blocks per chunk
	started time.Time
	metrics *metrics
	worker  sync.WaitGroup
	// beforeWrite runs in the worker before it makes a job's chunks visible.
	// Tests hold it to look at the time between acknowledged and visible.
	beforeWrite func()

	mu       sync.Mutex
	wake     *sync.Cond // the queue has grown, or the store was closed
	chunks   map[key]*list.Element
	recent   *list.List // of *chunk, most recently used first
	used     int64      // bytes
	pending  map[key]bool
	queue    []job
	inFlight int // jobs that the worker has taken and not yet finished
	epoch    int // Reset raises it: jobs of an older one are dropped
	closed   bool
}

var _ kv.Store = (*Store)(nil)

// A chunk is never changed once it is visible; whoever wants other bytes puts
// another slice in its place, so a Load may copy it without holding the lock.
type chunk struct {
	key    key
	salt   string
	start  int       // position of its first token
	values []float32 // its blocks one after the other
}

// A job is what one Store call has to write: chunks whose bytes were copied.
type job struct {
	epoch  int
	chunks []chunk
}

// New starts a store and its worker, which Close ends.
func New(cfg Config) (*Store, error) { return start(cfg, func() {}) }

func start(cfg Config, beforeWrite func()) (*Store, error) {
	switch {
	case cfg.BlockSize <= 0 || cfg.BlockLen <= 0:
		return nil, fmt.Errorf("starting a store for blocks of %d tokens and %d values: both must be positive", cfg.BlockSize, cfg.BlockLen)
	case cfg.Chunk <= 0 || cfg.Chunk%cfg.BlockSize != 0:
		// vLLM refuses the same at its start, observed with chunk 48, block 32.
		return nil, fmt.Errorf("starting a store with chunks of %d tokens: must be a multiple of the engine's block size %d", cfg.Chunk, cfg.BlockSize)
	case cfg.Capacity <= 0:
		return nil, fmt.Errorf("starting a store with a capacity of %d bytes: must be positive", cfg.Capacity)
	}
	s := &Store{
		cfg: cfg, blocks: cfg.Chunk / cfg.BlockSize, started: time.Now(), beforeWrite: beforeWrite,
		chunks: map[key]*list.Element{}, recent: list.New(), pending: map[key]bool{},
	}
	s.wake = sync.NewCond(&s.mu)
	s.metrics = newMetrics(s)
	s.worker.Go(s.write)
	return s, nil
}

// Close lets the worker write what was acknowledged, ends it and waits for it.
// Lookup, Load and Store fail afterwards. It may be called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.wake.Broadcast()
	s.mu.Unlock()
	s.worker.Wait()
	return nil
}

// Chunk is the number of tokens in a stored chunk.
func (s *Store) Chunk() int { return s.cfg.Chunk }

// ChunkBytes is the size of one chunk: tokens times bytes of KV per token.
func (s *Store) ChunkBytes() int64 { return 4 * int64(s.blocks) * int64(s.cfg.BlockLen) }

// Store copies the whole chunks of r that are neither stored nor on their way,
// queues them for the worker and returns. They are visible to Lookup later:
// poll /status until nothing is pending.
func (s *Store) Store(ctx context.Context, r kv.Request, src [][]float32) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing request %s: %w", r.ID, err)
	}
	keys := s.keys(r)
	if len(src) < len(keys)*s.blocks {
		return fmt.Errorf("storing request %s: %d blocks of %d tokens do not hold its %d whole chunks", r.ID, len(src), s.cfg.BlockSize, len(keys))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("storing request %s: %w", r.ID, ErrClosed)
	}
	j := job{epoch: s.epoch}
	for i, k := range keys {
		if s.chunks[k] != nil || s.pending[k] {
			continue
		}
		values := slices.Concat(src[i*s.blocks : (i+1)*s.blocks]...)
		if len(values) != s.blocks*s.cfg.BlockLen {
			return fmt.Errorf("storing chunk %d of request %s: %d values, want %d", i, r.ID, len(values), s.blocks*s.cfg.BlockLen)
		}
		j.chunks = append(j.chunks, chunk{key: k, salt: r.Salt, start: i * s.cfg.Chunk, values: values})
	}
	s.touch(keys)
	if len(j.chunks) == 0 {
		return nil
	}
	for _, c := range j.chunks {
		s.pending[c.key] = true
	}
	s.queue = append(s.queue, j)
	s.wake.Signal()
	return nil
}

// Reset forgets all chunks, also those that are still to be written. Like
// LMCache 0.5.6 it counts them as evicted.
func (s *Store) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("resetting the store: %w", err)
	}
	s.mu.Lock()
	dropped := s.recent.Len()
	s.chunks, s.pending, s.queue, s.used = map[key]*list.Element{}, map[key]bool{}, nil, 0
	s.recent.Init()
	s.epoch++
	s.mu.Unlock()
	s.metrics.evicted(dropped)
	return nil
}
