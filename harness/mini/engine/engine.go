// Package engine is an OpenAI-compatible LLM server in miniature, shaped like
// vLLM 0.32.0: its streams, errors and metrics look as that version's were
// observed to look, and behind them a real transformer computes over real
// paged KV. Nothing is scripted: a first token comes sooner after a cache hit
// because less is computed, and output changes when KV bytes change.
//
//	m, err := model.New(model.Mini())
//	e, err := engine.New(engine.Config{Model: m, BlockSize: 128, NumBlocks: 256, MaxSeqs: 8, PrefixCaching: true})
//	server := &http.Server{Addr: "127.0.0.1:8001", Handler: e.Handler()}
//	...
//	err = e.Shutdown(ctx) // drains
//
// Requests run first come, first served, MaxSeqs at a time, each on a goroutine
// of its own. A request starts when the pool has blocks for its prompt and all
// of its output, so nothing is ever preempted. Two caches may shorten its
// prefill: the engine's own prefix cache and a kv.Store.
//
// What the API has of vLLM's, and where it differs: completions and chat, one
// choice per prompt (n = 1). The sampling parameters that are honoured are
// temperature and seed; top_p, top_k, the penalties and unknown fields are
// accepted and have no effect. echo, suffix, prompt_logprobs and n > 1 are
// refused.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// A Config says what an engine serves and with which caches.
type Config struct {
	Model         *model.Model
	ModelName     string    // as clients name it; default "mini"
	BlockSize     int       // tokens in a block of paged KV
	NumBlocks     int       // blocks in the pool: room for one sequence of full context at least
	MaxSeqs       int       // sequences that run at once; more wait in order
	PrefixCaching bool      // the engine's own prefix cache
	DeferStores   bool      // a prompt goes to the store with its last token, not with its first
	RecomputeHits bool      // a fault: what the store delivered is counted as a hit and computed again
	Noise         float64   // logits after the first token move by up to this much, otherwise in each answer; 0: equal inputs give equal bits
	Store         kv.Store  // an external cache; nil: none
	Version       string    // for /version; default DefaultVersion
	Log           io.Writer // what went wrong, in lines; nil: nowhere
}

// DefaultVersion is the version whose protocol is imitated, with a local label
// by which a reader can tell the two apart.
const DefaultVersion = "0.32.0+mini"

// An Engine serves one model. All its methods are safe for concurrent use.
type Engine struct {
	config      Config
	model       *model.Model                // its shape, which stays
	weights     atomic.Pointer[model.Model] // what computes
	tokenizer   *tokenizer.Tokenizer
	fingerprint string // system_fingerprint of answers
	started     time.Time
	metrics     *metrics
	log         *log.Logger

	noise *noise // nil: none

	mu       sync.Mutex
	pool     *pool
	waiting  []*sequence            // in order of arrival
	active   map[*sequence]struct{} // waiting or running
	running  int
	loading  int           // of those running: external KV is being loaded
	draining bool          // new work is refused
	dead     error         // why the engine died, nil while it lives
	idle     chan struct{} // closed when the last sequence ends; made by Shutdown
}

// New checks the config and returns an engine that is ready to serve.
func New(c Config) (*Engine, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("making an engine: %w", err)
	}
	c.ModelName = cmp.Or(c.ModelName, "mini")
	c.Version = cmp.Or(c.Version, DefaultVersion)
	if c.Log == nil {
		c.Log = io.Discard
	}
	tok, err := tokenizer.New(c.Model.Config().Vocab)
	if err != nil {
		return nil, fmt.Errorf("making an engine: %w", err)
	}
	e := &Engine{
		config: c, model: c.Model, tokenizer: tok,
		fingerprint: systemFingerprint(c),
		started:     time.Now(),
		log:         log.New(c.Log, "engine: ", log.LstdFlags|log.Lmicroseconds),
		pool:        newPool(c.NumBlocks),
		active:      map[*sequence]struct{}{},
	}
	e.metrics = newMetrics(e)
	e.weights.Store(c.Model)
	e.noise = newNoise(c.Noise)
	return e, nil
}

func (c Config) check() error {
	if c.Model == nil {
		return errors.New("no model")
	}
	if c.BlockSize < 1 {
		return fmt.Errorf("block size %d: need at least 1 token", c.BlockSize)
	}
	if c.MaxSeqs < 1 {
		return fmt.Errorf("%d running sequences: need at least 1", c.MaxSeqs)
	}
	if need := blocksFor(c.Model.Config().Context, c.BlockSize); c.NumBlocks < need {
		return fmt.Errorf("%d blocks of %d tokens: a sequence of %d tokens, the model's context, needs %d",
			c.NumBlocks, c.BlockSize, c.Model.Config().Context, need)
	}
	if c.Store != nil && c.Store.Chunk()%c.BlockSize != 0 {
		return fmt.Errorf("a store with chunks of %d tokens: not a multiple of the block size %d", c.Store.Chunk(), c.BlockSize)
	}
	return nil
}

// blocksFor is how many blocks of size tokens hold n tokens.
func blocksFor(n, size int) int { return (n + size - 1) / size }

// Shutdown refuses new work, waits until all accepted requests have ended, and
// stops. When ctx ends first it cancels them and returns the context's error.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	if e.idle == nil {
		e.idle = make(chan struct{})
		e.closeIfIdle()
	}
	idle := e.idle
	e.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		e.cancelAll(errShutdown)
		<-idle
		return fmt.Errorf("draining the engine: %w", ctx.Err())
	}
}

// Die makes the engine fail as vLLM's core was observed to fail: streams that
// run get an error event and [DONE] under HTTP 200, other requests an error,
// and /health answers 503 from then on.
func (e *Engine) Die(reason string) {
	e.mu.Lock()
	if e.dead == nil {
		e.dead = errDead
		e.log.Printf("engine died: %s", reason)
	}
	e.mu.Unlock()
	e.cancelAll(errDead)
}

func (e *Engine) cancelAll(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.active {
		s.cancel(cause)
	}
}

// healthy is nil while the engine can take work.
func (e *Engine) healthy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refuses()
}

// refuses says why new work is not taken; the lock is held.
func (e *Engine) refuses() error {
	switch {
	case e.dead != nil:
		return e.dead
	case e.draining:
		return errShutdown
	}
	return nil
}

// resetCaches empties the prefix cache, and with external the store too. It
// returns false, and does nothing, while requests run or wait: their blocks
// are in use.
func (e *Engine) resetCaches(ctx context.Context, external bool) (bool, error) {
	e.mu.Lock()
	done := len(e.active) == 0 && e.pool.forget()
	e.mu.Unlock()
	if !done || !external || e.config.Store == nil {
		return done, nil
	}
	if err := e.config.Store.Reset(ctx); err != nil {
		return false, fmt.Errorf("resetting the external cache: %w", err)
	}
	return true, nil
}
