// Package store is a KV store behind the miniature engine: the part that
// LMCache's multiprocess server plays behind vLLM. It keeps whole chunks of C
// tokens under chained hashes, in memory (L1) and, where it is given a
// directory, in files (L2), writes them a little later than it acknowledges
// them, as LMCache does, and shows LMCache's status and counters over HTTP, so
// that the harness reads it with the code that reads the real one. Its wire to
// the engine is a Go call.
//
//	s, err := store.New(store.Config{
//		Chunk: 128, BlockSize: 128, BlockLen: m.BlockLen(128),
//		Capacity: 2 << 30, ModelName: "mini", Fingerprint: m.Fingerprint(),
//	})
//	defer s.Close()
//	e, err := engine.New(engine.Config{Store: s, ...})
//	go http.Serve(listener, s.Handler())
//
// # Order of use
//
// What is where follows the rule of package tier: LRU, with a watermark for
// L1. Its objects are the chunks. A lookup makes the chunks that it found the
// most recently used ones, the first chunk of the prompt most of all, and a
// load those that it read. A prompt that is written is used once more: first
// its chunks that are there, then all of them from the last to the first, each
// put if it is new. So the first chunk is the most recently used and the tail
// goes first: a chunk without those before it is of no use to anybody.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// ErrClosed says that the store has been closed.
var ErrClosed = errors.New("store is closed")

// A Config describes a store and the model whose KV it keeps.
type Config struct {
	Chunk       int    // C, tokens per chunk: a multiple of BlockSize
	BlockSize   int    // tokens in a block of the engine
	BlockLen    int    // float32 values in such a block: all layers, K and V
	Capacity    int64  // bytes of KV in L1
	ModelName   string // label of the lookup counters
	Fingerprint string // of the weights: KV of other weights never hits

	Watermark float64 // share of Capacity at which L1 evicts; 0: tier.DefaultWatermark
	Ratio     float64 // share of Capacity that it then frees; 0: tier.DefaultRatio; negative: none
	L2Dir     string  // L2 keeps its files below it; empty: no L2
	L2Bytes   int64   // of KV in L2; 0: unbounded, as LMCache's file adapter is
}

// A Store implements [kv.Store]. Memory is taken as chunks come, not at the
// start.
type Store struct {
	cfg     Config
	blocks  int // engine blocks per chunk
	started time.Time
	objects *tier.Objects
	metrics *metrics
	worker  sync.WaitGroup
	// beforeWrite runs in the worker before it makes a job's chunks visible.
	// Tests hold it to look at the time between acknowledged and visible.
	beforeWrite func()

	mu       sync.Mutex
	wake     *sync.Cond     // the queue has grown, or the store was closed
	origins  map[key]origin // of what is stored, and perhaps of some that has left
	pending  map[key]bool
	queue    []job
	inFlight int // jobs that the worker has taken and not yet finished
	epoch    int // Reset raises it: jobs of an older one are dropped
	dropped  int // chunks that resets took out of L1
	closed   bool
}

var _ kv.Store = (*Store)(nil)

// An origin says where a chunk came from.
type origin struct {
	salt  string
	start int // position of its first token
}

// A job is what one Store call has to write: the whole chunks of a prompt.
type job struct {
	epoch  int
	salt   string
	keys   []key
	values [][]float32 // by chunk, its blocks one after the other; nil: stored or queued before
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
	objects, err := tier.New(tier.Config{
		L1Bytes: cfg.Capacity, Watermark: cfg.Watermark, Ratio: cfg.Ratio, L2Dir: cfg.L2Dir, L2Bytes: cfg.L2Bytes,
	})
	if err != nil {
		return nil, fmt.Errorf("starting a store: %w", err)
	}
	s := &Store{
		cfg: cfg, blocks: cfg.Chunk / cfg.BlockSize, started: time.Now(), objects: objects, beforeWrite: beforeWrite,
		origins: map[key]origin{}, pending: map[key]bool{},
	}
	s.wake = sync.NewCond(&s.mu)
	s.metrics = newMetrics(s)
	s.worker.Go(s.write)
	return s, nil
}

// Close lets the worker write what was acknowledged, ends it, waits for it and
// removes the files of L2. Lookup, Load and Store fail afterwards. It may be
// called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.wake.Broadcast()
	s.mu.Unlock()
	s.worker.Wait()
	if err := s.objects.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
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
	j := job{epoch: s.epoch, salt: r.Salt, keys: keys, values: make([][]float32, len(keys))}
	var fresh []key
	for i, k := range keys {
		if s.objects.Where(k) != tier.None || s.pending[k] {
			continue
		}
		values := slices.Concat(src[i*s.blocks : (i+1)*s.blocks]...)
		if len(values) != s.blocks*s.cfg.BlockLen {
			return fmt.Errorf("storing chunk %d of request %s: %d values, want %d", i, r.ID, len(values), s.blocks*s.cfg.BlockLen)
		}
		j.values[i] = values
		fresh = append(fresh, k)
	}
	if len(fresh) == 0 {
		s.objects.Touch(keys...)
		return nil
	}
	for _, k := range fresh {
		s.pending[k] = true
	}
	s.queue = append(s.queue, j)
	s.wake.Signal()
	return nil
}

// Reset forgets all chunks, also those that are still to be written, in both
// tiers. That is the choice of the miniature stack, for which a reset has to
// make it cold: LMCache clears L1 only. Like LMCache 0.5.6 it counts what
// leaves L1 as evicted.
func (s *Store) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("resetting the store: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += s.objects.Stats().L1.Objects
	s.origins, s.pending, s.queue = map[key]origin{}, map[key]bool{}, nil
	s.epoch++
	if err := s.objects.Reset(); err != nil {
		return fmt.Errorf("resetting the store: %w", err)
	}
	return nil
}
