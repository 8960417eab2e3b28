// Package connector lets the miniature engine keep its KV in a cache server
// that speaks LMCache's wire, as vLLM's connector does: the one in this module
// (package lmcache) or any other.
//
//	c, err := connector.New(ctx, connector.Config{
//		Endpoint: "tcp://127.0.0.1:5555", Dialect: wire.Newest(), Model: "mini-" + m.Fingerprint(),
//		BlockSize: 16, Layers: 4, Hidden: 64,
//	})
//	defer c.Close(ctx)
//	e, err := engine.New(engine.Config{Store: c, ...})
//
// A lookup asks for the whole chunks of a prompt and locks what it finds; a
// load reads them, which releases the locks, and a store writes those that are
// missing. The connector copies by itself, from and to the pool in the server's
// shared memory (engine_driven), or lets the server copy between its memory and
// blocks of the connector's own (lmcache_driven).
package connector

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/kv"
)

// Transfers between engine and server.
const (
	EngineDriven  = "engine_driven"
	LMCacheDriven = "lmcache_driven"
)

// DefaultPatience is how long a call may go unanswered.
const DefaultPatience = 30 * time.Second

// A Config says where the server is and what the engine's KV looks like.
type Config struct {
	Endpoint string        // tcp://host:port
	Dialect  *wire.Dialect // what the server speaks
	Patience time.Duration // of each call; 0: DefaultPatience
	Transfer string        // EngineDriven or LMCacheDriven; empty: EngineDriven

	// Model names the KV. Other weights must have another name, or the KV of
	// one would be a hit for the other.
	Model     string
	BlockSize int // tokens in a block of the engine
	Layers    int
	Hidden    int // values of one token in one layer of K, or of V

	// Open maps the server's pool; nil: as shared memory.
	Open func(name string, size int) (Pool, error)
	// Staging is the tokens of KV that an lmcache_driven connector has room for
	// at a time; 0: DefaultStaging.
	Staging int
	// ForceReset lets a reset also forget what somebody has locked.
	ForceReset bool
}

// A Pool is memory that is shared with the server.
type Pool interface {
	Bytes() []byte
	Close() error
}

// A Connector implements [kv.Store].
type Connector struct {
	config   Config
	dealer   *wire.Dealer
	chunk    int // tokens
	instance int
	transfer transfer

	mu    sync.Mutex
	found map[string]int // by request: tokens that its lookup found and locked
}

var _ kv.Store = (*Connector)(nil)

// A transfer moves the KV of chunks between an engine's blocks and the server.
// The key's range is what is moved; blocks are those of the whole prompt.
type transfer interface {
	load(ctx context.Context, k wire.Key, blocks [][]float32) error
	store(ctx context.Context, k wire.Key, blocks [][]float32) error
	close(ctx context.Context) error
}

// New connects and registers. Close takes the registration back.
func New(ctx context.Context, config Config) (*Connector, error) {
	if config.Patience == 0 {
		config.Patience = DefaultPatience
	}
	if config.BlockSize < 1 || config.Layers < 1 || config.Hidden < 1 {
		return nil, fmt.Errorf("a connector for %d layers of %d values in blocks of %d tokens: all must be positive", config.Layers, config.Hidden, config.BlockSize)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	c := &Connector{
		config: config, dealer: wire.NewDealer(config.Endpoint, config.Dialect, config.Patience),
		instance: int(binary.LittleEndian.Uint64(random[:]) >> 2), found: map[string]int{},
	}
	if err := c.register(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting the engine to the cache server at %s: %w", config.Endpoint, err), c.dealer.Close())
	}
	return c, nil
}

func (c *Connector) register(ctx context.Context) (err error) {
	if _, err := c.dealer.Call(ctx, &wire.GetChunkSize{}, &c.chunk); err != nil {
		return err
	}
	if c.chunk < 1 || c.chunk%c.config.BlockSize != 0 {
		// vLLM refuses the same at its start, observed with chunk 48, block 32.
		return fmt.Errorf("the server's chunk of %d tokens is no multiple of the engine's block of %d", c.chunk, c.config.BlockSize)
	}
	switch c.config.Transfer {
	case "", EngineDriven:
		c.transfer, err = newEngineDriven(ctx, c)
	case LMCacheDriven:
		c.transfer, err = newLMCacheDriven(ctx, c)
	default:
		err = fmt.Errorf("transfer %q: there are %s and %s", c.config.Transfer, EngineDriven, LMCacheDriven)
	}
	return err
}

// Close unregisters and disconnects. Nothing may be under way.
func (c *Connector) Close(ctx context.Context) error {
	if err := errors.Join(c.transfer.close(ctx), c.dealer.Close()); err != nil {
		return fmt.Errorf("disconnecting the engine from the cache server: %w", err)
	}
	return nil
}

// Chunk is the server's chunk, in tokens.
func (c *Connector) Chunk() int { return c.chunk }

// key is the key of the first end tokens of a request, all of whose chunks are
// meant.
func (c *Connector) key(r kv.Request, end int) wire.Key {
	tokens := make(wire.Tokens, len(r.Tokens))
	for i, t := range r.Tokens {
		tokens[i] = uint32(t)
	}
	return wire.Key{
		Model: c.config.Model, WorldSize: 1, Tokens: tokens, End: end,
		RequestID: fmt.Sprintf("%x-%s", c.instance, r.ID), Salt: saltOf(r.Salt), Readers: 1,
	}
}

// saltOf is the salt as a server takes it: one that it would refuse is hashed.
func saltOf(salt string) string {
	if len(salt) <= 128 && !strings.ContainsAny(salt, "@/\\\x00") {
		return salt
	}
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(salt)))
}

// Lookup returns how many leading tokens of r the server has, in whole chunks,
// and locks them until they are loaded.
func (c *Connector) Lookup(ctx context.Context, r kv.Request) (int, error) {
	whole := len(r.Tokens) / c.chunk * c.chunk
	k := c.key(r, whole)
	k.Worker = wire.NoWorker
	chunks, err := c.lookup(ctx, k)
	if err != nil {
		return 0, fmt.Errorf("looking up request %s: %w", r.ID, err)
	}
	found := min(chunks*c.chunk, whole)
	if found == 0 && (r.SkipSave || whole == 0) { // nothing will be stored either
		return 0, c.end(ctx, k)
	}
	// An engine computes the last token itself. What it has of its own it does
	// not load, and then the locks would stay for as long as the server keeps them.
	if found > 0 && min(found, len(r.Tokens)-1) <= r.Computed {
		err := c.free(ctx, k)
		if found == whole || r.SkipSave {
			err = errors.Join(err, c.end(ctx, k))
		}
		return found, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found > 0 {
		c.found[k.RequestID] = found
	}
	return found, nil
}

func (c *Connector) lookup(ctx context.Context, k wire.Key) (chunks int, err error) {
	if _, err := c.dealer.Call(ctx, &wire.Lookup{Key: k, TPSize: 1}, nil); err != nil {
		return 0, err
	}
	for {
		var answered bool
		if c.config.Dialect.Wait {
			answered, err = c.dealer.Call(ctx, &wire.WaitPrefetchStatus{RequestID: k.RequestID, Timeout: c.config.Patience.Seconds() / 2}, &chunks)
		} else {
			answered, err = c.dealer.Call(ctx, &wire.QueryPrefetchStatus{RequestID: k.RequestID}, &chunks)
		}
		if err != nil || answered {
			return chunks, err
		}
	}
}

// free gives locks back that nobody will use.
func (c *Connector) free(ctx context.Context, k wire.Key) error {
	k.Worker = wire.NoWorker
	_, err := c.dealer.Call(ctx, &wire.FreeLookupLocks{Key: k, TPSize: 1}, nil)
	return err
}

// end tells the server that it will hear no more of a request.
func (c *Connector) end(ctx context.Context, k wire.Key) error {
	_, err := c.dealer.Call(ctx, &wire.EndSession{RequestID: k.RequestID}, nil)
	return err
}

// taken returns what a lookup of the request has found, once.
func (c *Connector) taken(k wire.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.found[k.RequestID]
	delete(c.found, k.RequestID)
	return found
}

// Load copies the chunks that hold the first tokens tokens of r into dst, each
// one whole as far as dst reaches.
func (c *Connector) Load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) error {
	need := (tokens + c.chunk - 1) / c.chunk * c.chunk
	if tokens <= 0 || need > len(r.Tokens) {
		return fmt.Errorf("loading %d tokens of request %s: its prompt of %d tokens has %d whole chunks of %d", tokens, r.ID, len(r.Tokens), len(r.Tokens)/c.chunk, c.chunk)
	}
	if want := (tokens + c.config.BlockSize - 1) / c.config.BlockSize; len(dst) < want {
		return fmt.Errorf("loading %d tokens of request %s into %d blocks of %d: %d are needed", tokens, r.ID, len(dst), c.config.BlockSize, want)
	}
	k := c.key(r, need)
	found := c.taken(k)
	err := c.transfer.load(ctx, k, dst)
	if err != nil {
		err = fmt.Errorf("loading %d tokens of request %s: %w", tokens, r.ID, err)
	}
	cleanup := context.WithoutCancel(ctx)
	if found > need {
		rest := k
		rest.Start, rest.End = need, found
		err = errors.Join(err, c.free(cleanup, rest))
	}
	if whole := len(r.Tokens) / c.chunk * c.chunk; err != nil || r.SkipSave || found == whole {
		err = errors.Join(err, c.end(cleanup, k))
	}
	return err
}

// Store writes the whole chunks of r that the server does not have.
func (c *Connector) Store(ctx context.Context, r kv.Request, src [][]float32) error {
	whole := len(r.Tokens) / c.chunk * c.chunk
	if len(src)*c.config.BlockSize < whole {
		return fmt.Errorf("storing request %s: %d blocks of %d tokens do not hold its %d whole chunks", r.ID, len(src), c.config.BlockSize, whole/c.chunk)
	}
	k := c.key(r, whole)
	var err error
	if whole > 0 {
		err = c.transfer.store(ctx, k, src)
	}
	if err = errors.Join(err, c.end(context.WithoutCancel(ctx), k)); err != nil {
		return fmt.Errorf("storing request %s: %w", r.ID, err)
	}
	return nil
}

// Reset empties the server's L1: all of it, whoever has stored it.
func (c *Connector) Reset(ctx context.Context) error {
	if _, err := c.dealer.Call(ctx, &wire.Clear{Force: c.config.ForceReset}, nil); err != nil {
		return fmt.Errorf("resetting the cache server: %w", err)
	}
	return nil
}
