package cachebench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/row"
)

// errStop ends a client after a finding: the run is void from there on.
var errStop = errors.New("a finding ends the run")

// A client runs requests one after the other.
type client struct {
	number int
	config Config
	server *lmcmp.Server
	client *lmcmp.Client
	band   lmcmp.Band
	record *record
	turn   int   // blocks that were handed out, in requests
	stored []int // sequences that were stored and not read
	clock  bool  // samples are kept
	counts bool  // comparisons are counted
	// stop ends the client between two requests; the calls of a request go on
	// without it, each with its own deadline, so that nothing is left locked.
	stop context.Context //nolint:containedctx // of the client's life
}

// token is what follows the first of each prompt, as upstream's benchmark has
// it, so that its prompts and ours are the same where the salt is.
const token = 9906

// prompt is the prompt of a sequence: since its first token differs, no chunk
// of it is one of another's.
func (c *client) prompt(sequence int, phase string) lmcmp.Request {
	tokens := make([]uint32, c.config.Tokens)
	tokens[0] = uint32(sequence)
	for i := range tokens[1:] {
		tokens[i+1] = token
	}
	return lmcmp.Request{ID: fmt.Sprintf("req-%d-%s", sequence, phase), Tokens: tokens}
}

// content is what the KV of a sequence consists of.
func (c *client) content(sequence int) lmcmp.Content {
	return lmcmp.Content{Seed: c.config.Seed*1_000_003 + uint64(sequence)}
}

func (c *client) blocks() ([]int, error) {
	c.turn++
	return c.band.Take(c.turn-1, c.config.blocks(c.server))
}

// pair is a prompt cold and warm.
func (c *client) pair(ctx context.Context, sequence int, late time.Duration) error {
	cold := c.prompt(sequence, "cold")
	if err := c.store(ctx, sequence, cold, late); err != nil {
		return err
	}
	if err := c.pause(); err != nil {
		return err
	}
	if err := c.retrieve(ctx, sequence, c.prompt(sequence, "warm"), late); err != nil {
		return err
	}
	return c.pause()
}

// store takes a prompt through the cold pass: a miss, a store, and lookups
// until it is found.
func (c *client) store(ctx context.Context, sequence int, r lmcmp.Request, late time.Duration) error {
	blocks, err := c.blocks()
	if err != nil {
		return err
	}
	content := c.content(sequence)
	if err := c.client.Write(blocks, content); err != nil {
		return err
	}
	hits, err := c.lookup(ctx, ColdLookup, sequence, r, late)
	if err != nil {
		return err
	}
	chunks := c.client.Chunks(r)
	if hits > 0 {
		c.record.finding(row.Finding{
			Code: row.ColdNotCold, Phase: "cold", Request: r.ID,
			Evidence: fmt.Sprintf("%d of %d chunks of a prompt that was never stored were found", hits, chunks),
			Advice:   "another run has stored the same sequence under the same salt: choose another salt or start, or clear the server",
		})
		return errors.Join(errStop, c.free(ctx, r), c.end(ctx, r))
	}
	start := time.Now()
	timing, err := c.client.Store(ctx, r, 0, chunks, blocks)
	c.record.call("store", "cold", r.ID, err)
	if err != nil {
		return errStop
	}
	c.sample(ColdStore, sequence, start, timing, late)
	if timing.Chunks != chunks {
		c.record.finding(row.Finding{
			Code: row.RequestFailed, Phase: "cold", Request: r.ID,
			Evidence: fmt.Sprintf("the server took %d of %d chunks of a prompt that it did not have", timing.Chunks, chunks),
			Advice:   "its memory may be full of locked objects, or another client stores the same prompt",
		})
		return errors.Join(errStop, c.end(ctx, r))
	}
	if err := c.end(ctx, r); err != nil {
		return err
	}
	return c.visible(ctx, sequence, chunks, start)
}

// visibleEvery is the pause between lookups for a store that is not found yet.
const visibleEvery = 200 * time.Microsecond

// visible asks until a store is found: its answer may mean submitted only. A
// lookup that is merely early is no miss.
func (c *client) visible(ctx context.Context, sequence, chunks int, start time.Time) error {
	deadline := start.Add(c.config.Patience)
	for try := 0; ; try++ {
		r := c.prompt(sequence, fmt.Sprintf("visible-%d", try))
		hits, _, err := c.client.Lookup(ctx, r)
		c.record.call("lookup", "settle", r.ID, err)
		if err != nil {
			return errStop
		}
		c.consumed(chunks, hits)
		found := time.Now()
		// Also after a miss: of several workers' chunks some may be there, and
		// locked.
		if err := errors.Join(c.free(ctx, r), c.end(ctx, r)); err != nil {
			return err
		}
		if hits >= chunks {
			c.sample(StoreVisible, sequence, start, lmcmp.Timing{Total: found.Sub(start)}, 0)
			return nil
		}
		if found.After(deadline) {
			c.record.finding(row.Finding{
				Code: row.HitBelowOracle, Phase: "settle", Request: r.ID,
				Evidence: fmt.Sprintf("%d of %d chunks can be found %v after they were stored", hits, chunks, c.config.Patience),
				Advice:   "the store was acknowledged and lost, or evicted at once: compare the server's L1 size with the KV of a prompt",
			})
			return errStop
		}
		if err := sleep(c.stop, visibleEvery); err != nil {
			return err
		}
	}
}

// retrieve takes a prompt through the warm pass: a hit, a retrieve into
// overwritten blocks, and a comparison.
func (c *client) retrieve(ctx context.Context, sequence int, r lmcmp.Request, late time.Duration) error {
	blocks, err := c.blocks()
	if err != nil {
		return err
	}
	if err := c.client.Poison(blocks); err != nil {
		return err
	}
	hits, err := c.lookup(ctx, WarmLookup, sequence, r, late)
	if err != nil {
		return err
	}
	chunks := c.client.Chunks(r)
	if hits != chunks {
		c.record.finding(row.Finding{
			Code: row.HitBelowOracle, Phase: "warm", Request: r.ID,
			Evidence: fmt.Sprintf("%d of %d chunks of a prompt that was stored and found are there", hits, chunks),
			Advice:   "it was evicted or cleared in between: compare the server's L1 size with the KV that the clients store",
		})
		return errors.Join(errStop, c.free(ctx, r), c.end(ctx, r))
	}
	start := time.Now()
	timing, err := c.client.Retrieve(ctx, r, 0, chunks, blocks)
	c.record.call("retrieve", "warm", r.ID, err)
	if err != nil {
		if !errors.Is(err, lmcmp.ErrRefused) {
			return errStop
		}
		c.record.finding(row.Finding{
			Code: row.LoadShorterThanLookup, Phase: "warm", Request: r.ID,
			Evidence: fmt.Sprintf("%d chunks were found and locked, and could not be retrieved", chunks),
		})
		return errors.Join(errStop, c.free(ctx, r), c.end(ctx, r))
	}
	c.sample(WarmRetrieve, sequence, start, timing, late)
	if err := c.end(ctx, r); err != nil {
		return err
	}
	return c.compare(ctx, sequence, r, blocks)
}

// lookup is a timed one.
func (c *client) lookup(ctx context.Context, op string, sequence int, r lmcmp.Request, late time.Duration) (int, error) {
	start := time.Now()
	hits, took, err := c.client.Lookup(ctx, r)
	phase, _, _ := strings.Cut(op, "_")
	c.record.call("lookup", phase, r.ID, err)
	if err != nil {
		return 0, errStop
	}
	chunks := c.client.Chunks(r)
	c.consumed(chunks, hits)
	c.sample(op, sequence, start, lmcmp.Timing{Total: took}, late)
	if op == WarmLookup && c.clock {
		c.record.mu.Lock()
		c.record.result.Asked += chunks * c.server.Chunk
		c.record.result.Hit += hits * c.server.Chunk
		c.record.mu.Unlock()
	}
	c.config.Progress(fmt.Sprintf("[seq %d/%s] LOOKUP: %d/%d chunks hit (%.1f ms)", sequence, phase, hits, chunks, milliseconds(took)))
	return hits, nil
}

// consumed adds to what the server's counters must show.
func (c *client) consumed(chunks, hits int) {
	c.record.mu.Lock()
	defer c.record.mu.Unlock()
	c.record.consumedAsked += chunks * c.server.Chunk
	c.record.consumedHit += hits * c.server.Chunk
}

// sample keeps one timing, if the clock is running.
func (c *client) sample(op string, sequence int, start time.Time, t lmcmp.Timing, late time.Duration) {
	if !c.clock {
		return
	}
	c.record.sample(Sample{
		Op: op, Client: c.number, Sequence: sequence, Start: start.Sub(c.record.start), Took: t.Total, Bytes: t.Bytes,
		Copy: t.Copy, Touch: t.FirstTouch, Late: late,
	})
	switch op {
	case ColdStore:
		c.config.Progress(fmt.Sprintf("[seq %d/cold] STORE: stored (%d bytes, %.1f ms)", sequence, t.Bytes, milliseconds(t.Total)))
	case WarmRetrieve:
		c.config.Progress(fmt.Sprintf("[seq %d/warm] RETRIEVE: retrieved (%d bytes, %.1f ms)", sequence, t.Bytes, milliseconds(t.Total)))
	}
}

func (c *client) free(ctx context.Context, r lmcmp.Request) error {
	err := c.client.Free(ctx, r)
	c.record.call("free_lookup_locks", "settle", r.ID, err)
	return stopIf(err)
}

func (c *client) end(ctx context.Context, r lmcmp.Request) error {
	err := c.client.End(ctx, r)
	c.record.call("end_session", "settle", r.ID, err)
	return stopIf(err)
}

func stopIf(err error) error {
	if err != nil {
		return errStop
	}
	return nil
}

func (c *client) pause() error { return sleep(c.stop, c.config.Interval) }

// sleep waits, or until ctx ends, which is an error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
