package lmcmp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A Request is one prompt on its way through the cache.
type Request struct {
	ID     string
	Tokens []uint32
}

// Chunks is the number of whole chunks in a prompt: the rest is never cached.
func (c *Client) Chunks(r Request) int { return len(r.Tokens) / c.server.Chunk }

// BlocksPerChunk is the number of paged blocks in a chunk.
func (c *Client) BlocksPerChunk() int { return c.server.Chunk / c.config.Shape.BlockSize() }

// key is the key of chunks [from, to) of a request for a worker.
func (c *Client) key(r Request, worker, from, to int) wire.Key {
	return wire.Key{
		Model: c.config.Model, WorldSize: c.worldSize(), Worker: worker, Tokens: r.Tokens,
		Start: from * c.server.Chunk, End: to * c.server.Chunk, RequestID: r.ID, Salt: c.config.Salt, Readers: c.readers(),
	}
}

// readers is the number of workers that read each object.
func (c *Client) readers() int {
	if c.config.Shape.MLA() {
		return c.config.Workers
	}
	return 1
}

// Lookup asks for the leading chunks of a prompt that the server has, which
// stay locked until they are retrieved or freed. A prompt without a whole chunk
// is asked for, too. The time is from sending the question to having the answer.
func (c *Client) Lookup(ctx context.Context, r Request) (chunks int, took time.Duration, err error) {
	key := c.key(r, wire.NoWorker, 0, c.Chunks(r))
	if err := key.Check(c.server.Chunk); err != nil {
		return 0, 0, fmt.Errorf("looking up request %s: %w", r.ID, err)
	}
	w := c.workers[0]
	start := time.Now()
	if _, err := w.dealer.Call(ctx, &wire.Lookup{Key: key, TPSize: c.config.Workers}, nil); err != nil {
		return 0, 0, c.explain(ctx, w, err)
	}
	chunks, err = c.found(ctx, w, r.ID)
	took = time.Since(start)
	if err == nil && chunks > c.Chunks(r) {
		err = fmt.Errorf("looking up request %s: %d chunks were found of a prompt that has %d", r.ID, chunks, c.Chunks(r))
	}
	return chunks, took, err
}

// queryEvery is the pause between questions to a release that cannot be waited
// for.
const queryEvery = time.Millisecond

// found waits for what a lookup found.
func (c *Client) found(ctx context.Context, w *worker, id string) (chunks int, err error) {
	if c.server.Dialect.Wait {
		// The server's own patience ends first, so that it answers.
		wait := &wire.WaitPrefetchStatus{RequestID: id, Timeout: (c.config.Patience / 2).Seconds()}
		present, err := w.dealer.Call(ctx, wait, &chunks)
		if err != nil {
			return 0, c.explain(ctx, w, err)
		}
		if !present {
			return 0, fmt.Errorf("looking up request %s: the server was still looking after %v", id, c.config.Patience/2)
		}
		return chunks, nil
	}
	deadline := time.Now().Add(c.config.Patience)
	for {
		present, err := w.dealer.Call(ctx, &wire.QueryPrefetchStatus{RequestID: id}, &chunks)
		switch {
		case err != nil:
			return 0, c.explain(ctx, w, err)
		case present:
			return chunks, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("looking up request %s: the server was still looking after %v", id, c.config.Patience)
		}
		timer := time.NewTimer(queryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
	}
}

// Free releases what a lookup found and nobody will retrieve.
func (c *Client) Free(ctx context.Context, r Request) error {
	w := c.workers[0]
	key := c.key(r, wire.NoWorker, 0, c.Chunks(r))
	if _, err := w.dealer.Call(ctx, &wire.FreeLookupLocks{Key: key, TPSize: c.config.Workers}, nil); err != nil {
		return c.explain(ctx, w, err)
	}
	return nil
}

// End forgets a request.
func (c *Client) End(ctx context.Context, r Request) error {
	w := c.workers[0]
	if _, err := w.dealer.Call(ctx, &wire.EndSession{RequestID: r.ID}, nil); err != nil {
		return c.explain(ctx, w, err)
	}
	return nil
}

// checkRange refuses a transfer that the server would drop, or that it would
// answer and not do.
func (c *Client) checkRange(r Request, from, to int, blocks []int) error {
	if from < 0 || to <= from || to > c.Chunks(r) {
		return fmt.Errorf("chunks [%d, %d) of request %s, which has %d whole ones", from, to, r.ID, c.Chunks(r))
	}
	if want := (to - from) * c.BlocksPerChunk(); len(blocks) != want {
		return fmt.Errorf("%d blocks for chunks [%d, %d) of request %s, want %d", len(blocks), from, to, r.ID, want)
	}
	seen := make(map[int]bool, len(blocks))
	for _, id := range blocks {
		if id == NullBlock || id < 0 || id >= c.config.Shape.Blocks() || seen[id] {
			return fmt.Errorf("block %d for request %s: ids are distinct, from 1 to %d (%d is the null block)", id, r.ID, c.config.Shape.Blocks()-1, NullBlock)
		}
		seen[id] = true
	}
	return nil
}

// perGroup are the ids of every group: all groups have the same.
func (c *Client) perGroup(blocks []int) [][]int {
	return slices.Repeat([][]int{blocks}, len(c.config.Shape))
}

// Write puts the content of a prompt's blocks into the workers' memory, as a
// prefill would. Workers hold different KV, unless it is MLA.
func (c *Client) Write(blocks []int, content Content) error {
	for i, w := range c.workers {
		event, err := w.memory.Write(blocks, c.contentOf(i, content))
		if err != nil {
			return fmt.Errorf("writing KV of worker %d: %w", i, err)
		}
		if err := w.put(event); err != nil {
			return err
		}
	}
	return nil
}

// put keeps the event behind what was put into the memory, for the server, and
// waits for it: the time of a transfer is then without that of the filling.
func (w *worker) put(event []byte) error {
	w.event = event
	if err := w.memory.Wait(event); err != nil {
		return fmt.Errorf("waiting for KV to be put into memory: %w", err)
	}
	return nil
}

// Poison overwrites blocks of all workers, so that a retrieve that does nothing
// can be seen.
func (c *Client) Poison(blocks []int) error {
	for i, w := range c.workers {
		event, err := w.memory.Poison(blocks)
		if err != nil {
			return fmt.Errorf("overwriting KV of worker %d: %w", i, err)
		}
		if err := w.put(event); err != nil {
			return err
		}
	}
	return nil
}

// Verify compares blocks of all workers with content.
func (c *Client) Verify(blocks []int, content Content) ([]Mismatch, error) {
	var all []Mismatch
	for i, w := range c.workers {
		found, err := w.memory.Verify(blocks, c.contentOf(i, content))
		if err != nil {
			return nil, fmt.Errorf("comparing KV of worker %d: %w", i, err)
		}
		for _, m := range found {
			m.Rank = i
			all = append(all, m)
		}
	}
	return all, nil
}

func (c *Client) contentOf(worker int, content Content) Content {
	if worker > 0 && !c.config.Shape.MLA() {
		content.Seed = mix(content.Seed + uint64(worker))
	}
	return content
}
