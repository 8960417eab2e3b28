package lmcmp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// DefaultModel is the model name in the keys of a client.
const DefaultModel = "kvproof"

// A Config describes a client: an engine of one worker or more.
type Config struct {
	Shape    Shape
	Transfer Transfer
	Model    string        // name in the keys; empty: DefaultModel
	Salt     string        // cache salt
	Instance int           // of the first worker, the others follow; 0: random
	Workers  int           // tensor-parallel workers; 0: one
	Patience time.Duration // for one call; 0: 10 s, as upstream's benchmark has it

	// NewMemory makes the KV of a worker; nil: memory of this machine.
	NewMemory func(worker int) (Memory, error)
	GPU       bool // that memory is on a GPU
}

// A Client stores and retrieves through one connection for each worker. One
// goroutine uses it at a time; several clients work side by side.
type Client struct {
	Transfer Transfer // resolved

	server  *Server
	config  Config
	workers []*worker
	pool    *shm.Segment

	touching sync.Mutex
	touched  map[int]bool // offsets of slots whose pages are in
}

// A worker is one rank: a connection, an instance and its memory.
type worker struct {
	dealer     *wire.Dealer
	instance   int
	rank       int // in the keys
	stores     bool
	memory     Memory
	host       *HostMemory // memory, where it is that
	event      []byte      // behind what was last put into it here; empty on a CPU
	registered bool
}

// Connect makes a client and registers its workers. What it needs on the way
// it gives back when it fails.
func (s *Server) Connect(ctx context.Context, config Config) (_ *Client, err error) {
	config.Model = cmp.Or(config.Model, DefaultModel)
	config.Workers = cmp.Or(config.Workers, 1)
	config.Patience = cmp.Or(config.Patience, rpcPatience)
	if config.Instance == 0 {
		config.Instance = 1 + rand.IntN(1<<52) // far from those of others
	}
	if err := config.Shape.CheckChunk(s.Chunk); err != nil {
		return nil, err
	}
	transfer, err := s.Resolve(config.Transfer, config.GPU)
	if err != nil {
		return nil, err
	}
	if transfer == EngineDriven && len(config.Shape) > 1 {
		return nil, fmt.Errorf("the KV shape %s has %d groups: %s is only known for one; use %s", config.Shape, len(config.Shape), EngineDriven, LMCacheDriven)
	}
	c := &Client{Transfer: transfer, server: s, config: config, touched: map[int]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.abandon(ctx))
		}
	}()
	for i := range config.Workers {
		if err := c.addWorker(ctx, i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Client) addWorker(ctx context.Context, i int) error {
	w := &worker{
		dealer:   wire.NewDealer(c.server.RPC, c.server.Dialect, c.config.Patience),
		instance: c.config.Instance + i, rank: i, stores: true,
	}
	c.workers = append(c.workers, w)
	if c.config.Shape.MLA() { // every rank has the same KV: one stores it
		w.rank, w.stores = 0, i == 0
	}
	if err := w.dealer.Connect(ctx); err != nil {
		return err
	}
	var err error
	if c.config.NewMemory != nil {
		w.memory, err = c.config.NewMemory(i)
	} else {
		w.host, err = NewHostMemory(c.config.Shape, c.Transfer == LMCacheDriven)
		if err == nil {
			w.memory = w.host
		}
	}
	if err != nil {
		return err
	}
	if c.Transfer == EngineDriven {
		err = c.registerEngineDriven(ctx, w)
	} else {
		err = c.registerTensors(ctx, w)
	}
	if err != nil {
		return fmt.Errorf("registering instance %d: %w", w.instance, err)
	}
	return nil
}

// worldSize is the number of workers that hold different KV.
func (c *Client) worldSize() int {
	if c.config.Shape.MLA() {
		return 1
	}
	return c.config.Workers
}

// registerTensors hands the worker's memory over.
func (c *Client) registerTensors(ctx context.Context, w *worker) error {
	request := &wire.RegisterKVCache{
		Instance: w.instance, Tensors: w.memory.Tensors(), Model: c.config.Model, WorldSize: c.worldSize(),
		EngineType: "vllm", Hints: wire.LayoutHints{KVLayout: "NHD"},
	}
	if len(request.Tensors) != c.config.Shape.Layers() {
		return fmt.Errorf("its memory has %d tensors, the KV shape %s has %d layers", len(request.Tensors), c.config.Shape, c.config.Shape.Layers())
	}
	first := 0
	for id, g := range c.config.Shape {
		group := wire.Group{ID: id, TokensPerBlock: g.BlockSize}
		for i := range g.Layers {
			group.Layers = append(group.Layers, first+i)
		}
		first += g.Layers
		request.Groups = append(request.Groups, group)
	}
	if !c.server.Dialect.HintHonoured { // such a server reads heads where the tokens of a block are
		g := c.config.Shape[0]
		if g.Planes == 2 && g.BlockSize%g.Heads != 0 {
			return fmt.Errorf("LMCache %s reads the KV as blocks of %d tokens, its number of heads, and the block size %d is not a multiple of that", c.server.Dialect.Version, g.Heads, g.BlockSize)
		}
	}
	if _, err := w.dealer.Call(ctx, request, nil); err != nil {
		return c.explain(ctx, w, err)
	}
	w.registered = true
	return w.memory.Registered()
}

// ErrNoPool says that the server has no shared memory to copy through. Its
// other way, pickled tensors inside messages, is not spoken here.
var ErrNoPool = errors.New("the cache server has no shared-memory pool; restart it with --shm-name NAME")

// registerEngineDriven announces the worker and maps the server's pool.
func (c *Client) registerEngineDriven(ctx context.Context, w *worker) error {
	g := c.config.Shape[0]
	request := &wire.RegisterEngineDriven{Context: wire.EngineContext{
		Instance: w.instance, Model: c.config.Model, WorldSize: c.worldSize(), BlockSize: g.BlockSize, Layers: g.Layers,
		Hidden: g.hidden(), DType: g.DType, MLA: g.Planes == 1, Slots: c.server.Chunk,
	}}
	var pool wire.Pool
	if _, err := w.dealer.Call(ctx, request, &pool); err != nil {
		return c.explain(ctx, w, err)
	}
	w.registered = true
	if pool.Name == "" || pool.Size == 0 {
		return ErrNoPool
	}
	if c.pool != nil {
		return nil
	}
	var err error
	if c.pool, err = shm.Open("/"+pool.Name, pool.Size); err != nil {
		return fmt.Errorf("opening the cache server's pool (it must run on this machine, and in a container share its IPC namespace): %w", err)
	}
	return nil
}

// explain adds to a call that was not answered whether the server still answers
// others: if so, it dropped this one.
func (c *Client) explain(ctx context.Context, w *worker, err error) error {
	var timeout *wire.TimeoutError
	if !errors.As(err, &timeout) {
		return err
	}
	alive := wire.NewDealer(c.server.RPC, c.server.Dialect, probePatience)
	defer alive.Close() //nolint:errcheck // nothing is lost with it
	if _, other := alive.Call(ctx, &wire.GetChunkSize{}, new(int)); other != nil {
		return fmt.Errorf("%w; it does not answer another request either, on a connection of its own: %w", err, other)
	}
	return fmt.Errorf("%w; it still answers others, so it dropped this one or is busy with transfers", err)
}

// abandon gives back what a client that failed to start has.
func (c *Client) abandon(ctx context.Context) error {
	err := c.Close(ctx)
	if err != nil {
		return fmt.Errorf("giving up: %w", err)
	}
	return nil
}

// Instances are the numbers under which the workers are registered.
func (c *Client) Instances() []int {
	var ids []int
	for _, w := range c.workers {
		ids = append(ids, w.instance)
	}
	return ids
}

// Strays are the replies that nobody waited for: late ones, and those that came
// twice.
func (c *Client) Strays() []wire.Stray {
	var all []wire.Stray
	for _, w := range c.workers {
		all = append(all, w.dealer.Strays()...)
	}
	return all
}

// unregisterPatience bounds what an end may take: a server that is gone must
// not hold up the cleaning up.
const unregisterPatience = 5 * time.Second

// Close unregisters the workers and gives memory and connections back, in spite
// of a context that has ended. It may be called again.
func (c *Client) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unregisterPatience)
	defer cancel()
	var errs []error
	for _, w := range c.workers {
		if w.registered {
			w.registered = false
			errs = append(errs, c.unregister(ctx, w))
		}
		errs = append(errs, w.dealer.Close())
		if w.memory != nil {
			errs = append(errs, w.memory.Close())
			w.memory, w.host = nil, nil
		}
	}
	if c.pool != nil {
		errs = append(errs, c.pool.Close())
		c.pool = nil
	}
	return errors.Join(errs...)
}

// ErrUnregister says that the server may still hold on to a client.
var ErrUnregister = errors.New("unregistering failed")

func (c *Client) unregister(ctx context.Context, w *worker) error {
	var request wire.Request = &wire.UnregisterKVCache{Instance: w.instance}
	if c.Transfer == EngineDriven {
		request = &wire.UnregisterEngineDriven{Instance: w.instance}
	} else if c.server.Dialect.Version == "0.4.7" && !c.config.GPU {
		return nil // observed: on a CPU its handler fails and nothing is answered
	}
	if _, err := w.dealer.Call(ctx, request, nil); err != nil {
		return fmt.Errorf("%w: instance %d: %w", ErrUnregister, w.instance, err)
	}
	return nil
}
