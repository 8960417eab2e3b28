package lmcmp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A Timing is how long a transfer took, of the slowest worker. Total is from
// sending to having the answer, the copying of either side included; the pages
// of the server's pool that had never been touched are faulted in beside it.
type Timing struct {
	Total      time.Duration
	Copy       time.Duration // by the client, in engine_driven mode
	FirstTouch time.Duration // faulting pages in; not in Total
	Bytes      int           // of all workers
	Chunks     int           // that a store wrote, or a retrieve read, on each worker
}

// ErrRefused says that the server answered a transfer with no.
var ErrRefused = errors.New("the cache server answered false")

// Store stores chunks [from, to) of a prompt out of blocks of every worker that
// stores. In lmcache_driven mode the answer means that the server has taken the
// chunks, not that they can be found already.
func (c *Client) Store(ctx context.Context, r Request, from, to int, blocks []int) (Timing, error) {
	if err := c.checkRange(r, from, to, blocks); err != nil {
		return Timing{}, fmt.Errorf("storing: %w", err)
	}
	return c.onWorkers(func(w *worker) (Timing, error) {
		if !w.stores {
			return Timing{}, nil
		}
		if c.Transfer == EngineDriven {
			return c.storeThroughPool(ctx, w, r, from, to, blocks)
		}
		return c.storeByServer(ctx, w, r, from, to, blocks)
	})
}

// Retrieve brings chunks [from, to) of a prompt into blocks of every worker and
// gives back what the lookup locked.
func (c *Client) Retrieve(ctx context.Context, r Request, from, to int, blocks []int) (Timing, error) {
	if err := c.checkRange(r, from, to, blocks); err != nil {
		return Timing{}, fmt.Errorf("retrieving: %w", err)
	}
	return c.onWorkers(func(w *worker) (Timing, error) {
		if c.Transfer == EngineDriven {
			return c.retrieveThroughPool(ctx, w, r, from, to, blocks)
		}
		return c.retrieveByServer(ctx, w, r, from, to, blocks)
	})
}

// onWorkers runs f for every worker, side by side where there are several, and
// returns the slowest one's times and the bytes of all.
func (c *Client) onWorkers(f func(*worker) (Timing, error)) (Timing, error) {
	if len(c.workers) == 1 {
		return f(c.workers[0])
	}
	timings := make([]Timing, len(c.workers))
	errs := make([]error, len(c.workers))
	var running sync.WaitGroup
	for i, w := range c.workers {
		running.Go(func() {
			if timings[i], errs[i] = f(w); errs[i] != nil {
				errs[i] = fmt.Errorf("worker %d: %w", i, errs[i])
			}
		})
	}
	running.Wait()
	var all Timing
	for _, t := range timings {
		all.Total, all.Copy, all.FirstTouch = max(all.Total, t.Total), max(all.Copy, t.Copy), max(all.FirstTouch, t.FirstTouch)
		all.Chunks = max(all.Chunks, t.Chunks)
		all.Bytes += t.Bytes
	}
	return all, errors.Join(errs...)
}

func (c *Client) storeByServer(ctx context.Context, w *worker, r Request, from, to int, blocks []int) (Timing, error) {
	request := &wire.Store{Key: c.key(r, w.rank, from, to), Instance: w.instance, Blocks: c.perGroup(blocks), Event: w.event}
	return c.transfer(ctx, w, request, to-from)
}

func (c *Client) retrieveByServer(ctx context.Context, w *worker, r Request, from, to int, blocks []int) (Timing, error) {
	request := &wire.Retrieve{Key: c.key(r, w.rank, from, to), Instance: w.instance, Blocks: c.perGroup(blocks), Event: w.event}
	return c.transfer(ctx, w, request, to-from)
}

// transfer is a call in which the server copies. On a GPU it answers before the
// copy has ended, with an event to wait for.
func (c *Client) transfer(ctx context.Context, w *worker, request wire.Request, chunks int) (Timing, error) {
	var answer wire.Transfer
	start := time.Now()
	if _, err := w.dealer.Call(ctx, request, &answer); err != nil {
		return Timing{}, c.explain(ctx, w, err)
	}
	if !answer.OK { // then there may be no event
		return Timing{}, fmt.Errorf("%s: %w; its log says why", request.Op(), ErrRefused)
	}
	if err := w.memory.Wait(answer.Event); err != nil {
		return Timing{}, fmt.Errorf("%s: waiting for the end of the copy: %w", request.Op(), err)
	}
	took := time.Since(start)
	return Timing{Total: took, Chunks: chunks, Bytes: chunks * c.server.Chunk * c.config.Shape.TokenBytes()}, nil
}

func (c *Client) storeThroughPool(ctx context.Context, w *worker, r Request, from, to int, blocks []int) (Timing, error) {
	key := c.key(r, w.rank, from, to)
	var prepared wire.PreparedStore
	start := time.Now()
	if _, err := w.dealer.Call(ctx, &wire.PrepareStore{Key: key, Instance: w.instance}, &prepared); err != nil {
		return Timing{}, c.explain(ctx, w, err)
	}
	rpc := time.Since(start)
	slots, chunks := prepared.Context.Slots, prepared.Context.Chunks
	if len(slots) == 0 {
		// All chunks are there, or another client is writing them: there is nothing to commit.
		return Timing{Total: rpc}, nil
	}
	if len(slots) != len(chunks) {
		return Timing{}, fmt.Errorf("prepare_store: %d slots for %d chunks", len(slots), len(chunks))
	}
	for i, chunk := range chunks {
		if chunk < 0 || chunk >= to-from {
			return Timing{}, fmt.Errorf("prepare_store: slot %d is for chunk %d of %d", i, chunk, to-from)
		}
	}
	t, err := c.copySlots(w, slots, func(i int) int { return chunks[i] }, blocks, true)
	if err != nil {
		return Timing{}, fmt.Errorf("prepare_store: %w", err)
	}
	return c.commit(ctx, w, &wire.CommitStore{Key: key, Instance: w.instance}, rpc, t)
}

func (c *Client) retrieveThroughPool(ctx context.Context, w *worker, r Request, from, to int, blocks []int) (Timing, error) {
	key := c.key(r, w.rank, from, to)
	var prepared wire.PreparedRetrieve
	start := time.Now()
	if _, err := w.dealer.Call(ctx, &wire.PrepareRetrieve{Key: key, Instance: w.instance}, &prepared); err != nil {
		return Timing{}, c.explain(ctx, w, err)
	}
	rpc := time.Since(start)
	slots := prepared.Context.Slots
	if !prepared.Success {
		return Timing{}, fmt.Errorf("prepare_retrieve: %w", ErrRefused)
	}
	if len(slots) != to-from {
		return Timing{}, fmt.Errorf("prepare_retrieve: %d slots for %d chunks", len(slots), to-from)
	}
	t, err := c.copySlots(w, slots, func(i int) int { return i }, blocks, false)
	if err != nil {
		return Timing{}, fmt.Errorf("prepare_retrieve: %w", err)
	}
	return c.commit(ctx, w, &wire.CommitRetrieve{Key: key, Instance: w.instance}, rpc, t)
}

// copySlots copies between blocks and the slots of the chunks that chunk names,
// one for each slot.
func (c *Client) copySlots(w *worker, slots []wire.Slot, chunk func(slot int) int, blocks []int, toSlot bool) (Timing, error) {
	t := Timing{Chunks: len(slots)}
	var spans []span
	per := c.BlocksPerChunk()
	for i, slot := range slots {
		first := chunk(i) * per
		part, err := c.slotSpans(w, slot, blocks[first:first+per], toSlot, &t)
		if err != nil {
			return Timing{}, err
		}
		spans = append(spans, part...)
	}
	start := time.Now()
	t.Bytes = copySpans(spans)
	t.Copy = time.Since(start)
	return t, nil
}

// commit ends a transfer whose preparation took rpc.
func (c *Client) commit(ctx context.Context, w *worker, request wire.Request, rpc time.Duration, t Timing) (Timing, error) {
	start := time.Now()
	var ok bool
	if _, err := w.dealer.Call(ctx, request, &ok); err != nil {
		return Timing{}, c.explain(ctx, w, err)
	}
	t.Total = rpc + t.Copy + time.Since(start)
	if !ok {
		return Timing{}, fmt.Errorf("%s: %w", request.Op(), ErrRefused)
	}
	return t, nil
}

// slotSpans checks a slot against the pool and the chunk, faults its pages in,
// and returns what is to be copied.
func (c *Client) slotSpans(w *worker, slot wire.Slot, blocks []int, toSlot bool, t *Timing) ([]span, error) {
	want := w.host.chunkBytes(len(blocks))
	pool := c.pool.Bytes()
	if slot.Length != want || slot.Offset < 0 || slot.Offset > len(pool)-slot.Length {
		return nil, fmt.Errorf("a slot of %d bytes at %d in a pool of %d, for a chunk of %d bytes", slot.Length, slot.Offset, len(pool), want)
	}
	bytes := pool[slot.Offset : slot.Offset+slot.Length]
	if err := c.touch(slot, t); err != nil {
		return nil, err
	}
	return w.host.spans(bytes, blocks, toSlot), nil
}

// touch faults in the pages of a slot that this client has not used before.
// Several workers may ask at once.
func (c *Client) touch(slot wire.Slot, t *Timing) error {
	c.touching.Lock()
	defer c.touching.Unlock()
	if c.touched[slot.Offset] {
		return nil
	}
	start := time.Now()
	if err := c.pool.PopulateRange(slot.Offset, slot.Length); err != nil {
		return err
	}
	t.FirstTouch += time.Since(start)
	c.touched[slot.Offset] = true
	return nil
}
