package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// A backend is the cache server behind an engine.
type backend interface {
	blockSize(context.Context) (int, error) // that it runs with
	busy(context.Context) (string, error)   // what is still going on there; empty: nothing
	clear(context.Context) error            // goes cold, where the engine's reset does not reach
}

// cacheControl empties and settles the cache of a row through the engine's and
// the cache server's own endpoints.
type cacheControl struct {
	spec    spec
	client  *openai.Client
	engine  row.Probe
	backend backend // nil: there is none
	shared  bool    // others may use the server: it need never be idle
	blind   bool    // the engine's gauges cannot be read
}

// Cold makes the cache empty. An engine with blocks in use answers its reset
// 200 with success:false, so it is asked again until it says true or ctx ends.
// One that does not say is taken at its word here: the proof of the reset will
// tell.
func (c *cacheControl) Cold(ctx context.Context) error {
	if !c.spec.Supports(row.Reset) || c.spec.coldHow == "files" {
		if c.backend == nil {
			return nil
		}
		return c.backend.clear(ctx)
	}
	for {
		err := c.client.ResetPrefixCache(ctx, c.backend != nil || c.spec.coldHow == "reset-external")
		switch {
		case err == nil, errors.Is(err, openai.ErrResetUnknown):
			return nil
		case !errors.Is(err, openai.ErrResetRefused):
			return err
		case wait(ctx) != nil:
			return fmt.Errorf("resetting the prefix cache until the deadline: %w", err)
		}
	}
}

// Settle waits until the engine is idle and the cache server, where there is
// one, has looked quiet a few times in a row.
func (c *cacheControl) Settle(ctx context.Context) error {
	if c.shared {
		return c.settleShared(ctx)
	}
	for quiet := 0; quiet < quietPolls; {
		busy, err := c.busy(ctx)
		if err != nil {
			return err
		}
		if quiet++; busy != "" {
			quiet = 0
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("still busy: %s: %w", busy, err)
		}
	}
	return nil
}

// settleShared waits for a server that others may use: until the cache server
// behind it looks quiet once, and no longer than sharedPatience, for it need never be.
// What was not yet readable shows as fewer hits, which there have no lower bound.
func (c *cacheControl) settleShared(ctx context.Context) error {
	if c.backend == nil {
		return ctx.Err()
	}
	waiting, cancel := context.WithTimeout(ctx, sharedPatience)
	defer cancel()
	for {
		if busy, err := c.backend.busy(waiting); err == nil && busy == "" || wait(waiting) != nil {
			return ctx.Err()
		}
	}
}

// busy says what is still going on, or nothing.
func (c *cacheControl) busy(ctx context.Context) (string, error) {
	if c.blind {
		return c.backendBusy(ctx)
	}
	snapshot, err := c.engine.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	gauges := c.spec.idle
	if gauges == nil {
		gauges = []string{"vllm:num_requests_running", "vllm:num_requests_waiting"}
	}
	for _, gauge := range gauges {
		n, ok := probe.Sum(snapshot, gauge, nil)
		if !ok {
			return "", fmt.Errorf("the engine does not export %s", gauge)
		}
		if n > 0 {
			return fmt.Sprintf("%s is %v", gauge, n), nil
		}
	}
	return c.backendBusy(ctx)
}

func (c *cacheControl) backendBusy(ctx context.Context) (string, error) {
	if c.backend == nil {
		return "", nil
	}
	return c.backend.busy(ctx)
}

// wait pauses between two polls; it fails when ctx ends first.
func wait(ctx context.Context) error { return pause(ctx, pollEvery) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
