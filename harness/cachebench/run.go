package cachebench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/row"
)

// Run runs the benchmark. An error says why it did not begin; what went wrong
// afterwards is in the result's findings. When ctx ends, clients finish the
// request that they are in, and what was measured until then is kept.
func Run(ctx context.Context, server *lmcmp.Server, config Config) (*Result, error) {
	config = config.withDefaults()
	if err := config.check(server); err != nil {
		return nil, err
	}
	if _, err := shm.Sweep(); err != nil { // of runs that were killed
		return nil, err
	}
	result := &Result{Server: server, Config: config, Calls: map[string]Calls{}}
	r := &runner{config: config, server: server, record: &record{result: result}}
	begin := time.Now()
	err := r.connect(ctx)
	result.Startup = time.Since(begin)
	if err == nil {
		result.Transfer = r.clients[0].client.Transfer
		err = r.measure(ctx)
	}
	r.close(ctx)
	result.Interrupted = ctx.Err() != nil
	return result, err
}

// A runner is one run.
type runner struct {
	config  Config
	server  *lmcmp.Server
	record  *record
	clients []*client
}

// connect brings up every client, with a band of blocks of its own.
func (r *runner) connect(ctx context.Context) error {
	bands, err := r.config.Shape.Bands(r.config.Clients)
	if err != nil {
		return err
	}
	for i, band := range bands {
		config := lmcmp.Config{
			Shape: r.config.Shape, Transfer: r.config.Transfer, Model: r.config.Model, Salt: r.config.Salt,
			Workers: r.config.Workers, Patience: r.config.Patience, GPU: r.config.GPU,
		}
		if r.config.NewMemory != nil {
			config.NewMemory = func(worker int) (lmcmp.Memory, error) { return r.config.NewMemory(i, worker) }
		}
		c, err := r.server.Connect(ctx, config)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		r.clients = append(r.clients, &client{number: i, config: r.config, server: r.server, client: c, band: band, record: r.record})
	}
	return nil
}

// measure takes the witnesses' word, lets the clients go all at once, and takes
// it again.
func (r *runner) measure(ctx context.Context) error {
	before, err := r.look(ctx)
	if err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := context.WithoutCancel(ctx)
	for _, c := range r.clients {
		c.stop = stop
	}
	if err := r.onClients(cancel, func(c *client) error { return c.prewarm(calls) }); err != nil {
		return err
	}
	r.record.start = time.Now()
	err = r.onClients(cancel, func(c *client) error {
		c.clock, c.counts = true, true
		err := r.loop(calls, c)
		c.clock = false
		return err
	})
	r.record.result.Wall = time.Since(r.record.start)
	if err == nil && !r.void() {
		err = r.onClients(cancel, func(c *client) error { return c.readBack(calls) })
	}
	r.strays()
	if config := r.config; config.Limit && err == nil {
		r.record.result.CopyLimit, err = lmcmp.CopyLimit(config.blocks(r.server) * config.Shape.BlockSize() * config.Shape.TokenBytes())
	}
	return errors.Join(err, r.lookAgain(calls, before))
}

// void says that a finding has ended the run.
func (r *runner) void() bool {
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	return len(r.record.result.Findings) > 0
}

// onClients runs f for every client at once and waits for all. The first that
// ends in error makes the others stop after the request that they are in; that
// a finding or the context ended one is no error of the run.
func (r *runner) onClients(cancel context.CancelFunc, f func(*client) error) error {
	errs := make([]error, len(r.clients))
	var running sync.WaitGroup
	for i, c := range r.clients {
		running.Go(func() {
			if err := f(c); err != nil {
				cancel()
				if !errors.Is(err, errStop) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					errs[i] = fmt.Errorf("client %d: %w", c.number, err)
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// loop runs a client's share of the requests: those whose number leaves its own
// when divided by the clients.
func (r *runner) loop(ctx context.Context, c *client) error {
	for number := c.number; r.config.Requests == 0 || number < r.config.Requests; number += r.config.Clients {
		late, err := r.wait(c, number)
		if err != nil {
			return err
		}
		if err := c.request(ctx, r.config.Start+number, late); err != nil {
			return err
		}
		r.record.mu.Lock()
		r.record.result.Requests++
		r.record.mu.Unlock()
	}
	return nil
}

// wait holds a request back until the rate allows it. The schedule is absolute:
// a request that is late delays no other by itself.
func (r *runner) wait(c *client, number int) (late time.Duration, err error) {
	if r.config.Rate == 0 {
		return 0, c.stop.Err()
	}
	due := r.record.start.Add(time.Duration(float64(number) / r.config.Rate * float64(time.Second)))
	if err := sleep(c.stop, time.Until(due)); err != nil {
		return 0, err
	}
	return time.Since(due), nil
}

// request is one of the operation that is measured.
func (c *client) request(ctx context.Context, sequence int, late time.Duration) error {
	switch c.config.Op.Kind {
	case OpStore:
		return c.fresh(ctx, sequence, late)
	case OpRetrieve:
		return c.again(ctx, sequence, late)
	case OpMixed:
		// By the content's own mixing, so that a run can be repeated and clients
		// do not march in step.
		if share(c.config.Seed, sequence) < c.config.Op.Share {
			return c.again(ctx, sequence, late)
		}
		return c.fresh(ctx, sequence, late)
	}
	return c.pair(ctx, sequence, late)
}

// share is a number in [0, 1) that follows from both.
func share(seed uint64, sequence int) float64 {
	return float64(lmcmp.Mix(seed^uint64(sequence))>>11) / (1 << 53)
}

func (c *client) fresh(ctx context.Context, sequence int, late time.Duration) error {
	if err := c.store(ctx, sequence, c.prompt(sequence, "cold"), late); err != nil {
		return err
	}
	c.stored = append(c.stored, sequence)
	return c.pause()
}

// again retrieves one of the prompts that were stored before the clock started.
func (c *client) again(ctx context.Context, sequence int, late time.Duration) error {
	known := c.prewarmed(sequence / c.config.Clients % Prewarmed)
	if err := c.retrieve(ctx, known, c.prompt(known, fmt.Sprintf("warm-%d", sequence)), late); err != nil {
		return err
	}
	return c.pause()
}

// prewarmedFrom is where the sequences of prompts that are stored before the
// clock starts begin: far beyond those that are measured.
const prewarmedFrom = 1 << 30

func (c *client) prewarmed(i int) int { return prewarmedFrom + c.config.Start + c.number*Prewarmed + i }

// prewarm stores what is to be retrieved, before the clock starts. Where that
// is nothing, it takes one prompt through both passes, which nobody counts: the
// first request of a client pays for pages and threads.
func (c *client) prewarm(ctx context.Context) error {
	n := Prewarmed
	if c.config.Op.Kind == OpPair || c.config.Op.Kind == OpStore {
		n = 1
	}
	for i := range n {
		sequence := c.prewarmed(i)
		if err := c.store(ctx, sequence, c.prompt(sequence, "cold"), 0); err != nil {
			return err
		}
		if err := c.stop.Err(); err != nil {
			return err
		}
	}
	sequence := c.prewarmed(0)
	return c.retrieve(ctx, sequence, c.prompt(sequence, "warm"), 0)
}

// readBack retrieves and compares the last prompts that were stored and never
// read: a store that is fast and wrong has no throughput.
func (c *client) readBack(ctx context.Context) error {
	for _, sequence := range c.stored[max(0, len(c.stored)-readBack):] {
		if err := c.retrieve(ctx, sequence, c.prompt(sequence, "back"), 0); err != nil {
			return err
		}
	}
	return nil
}

// strays makes findings of replies that nobody asked for.
func (r *runner) strays() {
	for _, c := range r.clients {
		for _, s := range c.client.Strays() {
			f := row.Finding{
				Code: row.StrayReply, Phase: "run",
				Evidence: fmt.Sprintf("client %d got a second reply to its request %d", c.number, s.UID),
				Advice:   "what a reply is taken for depends on its number alone: a server that repeats one can answer the wrong question",
			}
			if s.Late != "" {
				f.Evidence = fmt.Sprintf("client %d got the reply to %s, its request %d, after it had given up", c.number, s.Late, s.UID)
				f.Advice = "raise the patience, or look for what held the server up"
			}
			r.record.finding(f)
		}
	}
}

// close ends every client. One that cannot be unregistered is a finding: the
// server may hold on to its memory.
func (r *runner) close(ctx context.Context) {
	for _, c := range r.clients {
		err := c.client.Close(ctx)
		if err == nil {
			continue
		}
		r.record.finding(row.Finding{
			Code: row.UnregisterFailed, Phase: "end", Evidence: fmt.Sprintf("client %d: %v", c.number, err),
			Advice: "restart the server: it may keep the client's memory mapped",
		})
		r.record.taint("client %d could not be unregistered", c.number)
	}
}
