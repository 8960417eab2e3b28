// Package run turns a plan into a result: cold pass, settle, warm pass, the
// proof, and for each of them the findings that make its numbers invalid. It
// knows no testing package, so that planted faults are ordinary tests and
// commands can use it too.
//
//	cell := run.NewCell(server, run.Config{Workload: workload, Params: params, Concurrency: 2, ...})
//	proof, findings, err := cell.Proof(ctx)
//	result, findings, err := cell.Cycle(ctx) // fresh content each time
//
// Findings are what the passes show; an error means that the run itself could
// not go on, for example because its context ended.
package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/row"
)

// Config says what a cell runs and how.
type Config struct {
	Workload    fixtures.Workload
	Params      fixtures.Params // Cycle is set by the cell
	Concurrency int             // requests in flight at most

	// Arrivals says when the requests of a measured pass are due; nil: a closed loop.
	Arrivals func([]fixtures.Request) load.Schedule
	// Replay says that the arrivals are a record: falling behind them is shown.
	// Otherwise they are a rate that was asked for, and it is a finding.
	Replay bool

	Reuse     bool // the row has a cache
	Reset     bool // the row promises an empty cache after Cold: proved each cycle
	Exact     bool // equal inputs give equal bits on this stack, whatever the batch
	Logprobs  bool // the proof can ask for logprobs
	Lossy     bool // outputs after a hit differ by design
	SkipReuse bool // a request can be answered without the cache
	Salts     bool // requests with different salts share nothing

	Sampling Sampling // of the timed passes and the proof alike

	Before        []fixtures.Request       // what the store was given before the cell, e.g. a warm-up
	ProofRequests int                      // requests of the proof at most
	ResetTimeout  time.Duration            // how long a reset may be refused; 0: half a minute
	Answers       *Answers                 // shared by the rows of a run; nil: rows are not held to each other
	Controls      *Controls                // shared by the rows of a run; nil: each row runs its own
	Artifacts     *artifact.Cell           // nil: nothing is written
	Command       []string                 // for the repro folder
	Manifest      artifact.ServiceManifest // of the row, for results.json
	Prepared      artifact.Prepared        // of the workload, for results.json

	Timed    func(running bool) // brackets the requests of a pass; nil: nobody measures
	Progress func(line string)  // nil: nobody watches
}

// Sampling is how tokens are chosen; its zero value takes the likeliest.
type Sampling struct {
	Temperature float64
	TopP        float64 // 0: as 1
	Seed        uint64
}

// For is the configuration for a row: what it declares about itself.
func (c Config) For(r row.Row) Config {
	c.Reuse, c.Reset, c.Logprobs = r.Supports(row.Reuse), r.Supports(row.Reset), r.Supports(row.Logprobs)
	c.Lossy, c.SkipReuse, c.Salts = r.Supports(row.Lossy), r.Supports(row.SkipReuse), r.Supports(row.Salts)
	return c
}

const (
	settleTimeout = 60 * time.Second // bounded: a store that never settles is a finding
	uploadTimeout = 10 * time.Minute // of all documents of a plan; a server waits 5 minutes for one
	proofLogprobs = 5
	proofMinimum  = 32 // compared tokens a request below which nothing is called identical
	proofOutput   = 64 // tokens that each request of the proof generates at least, where they fit
	proofCycle    = 0  // content of its own: timed cycles count from 1
)

// A Cell is one row, block size and workload on a running server. Its methods
// are not safe for concurrent use.
type Cell struct {
	server *row.Server
	config Config
	cycle  int
	kept   *oracles // of a store that evicts and is never emptied

	control *Control // of the proof; nil: none, or the stack is exact
}

// NewCell prepares a cell; nothing is sent.
func NewCell(server *row.Server, config Config) *Cell {
	config.Salts = config.Salts && !server.Saltless
	if config.Timed == nil {
		config.Timed = func(bool) {}
	}
	if config.ResetTimeout == 0 {
		config.ResetTimeout = 30 * time.Second
	}
	if config.Progress == nil {
		config.Progress = func(string) {}
	}
	return &Cell{server: server, config: config, cycle: proofCycle + 1}
}

// Params are the sizes of the cell's plans.
func (c *Cell) Params() fixtures.Params { return c.config.Params }

// oracles knows what the cache holds before a cycle: nothing that the cycle
// could hit. Where the store evicts, what earlier cycles left in it decides
// what leaves next, so that is kept unless each cycle empties the store.
func (c *Cell) oracles() *oracles {
	if c.server.Capacity == nil || c.config.Reset {
		return newOracles(c.server, c.config.Concurrency)
	}
	if c.kept == nil {
		c.kept = newOracles(c.server, c.config.Concurrency)
		c.kept.store(fixtures.Plan{Requests: c.config.Before})
	}
	return c.kept
}

// Start checks what a server says about itself before anything is measured on
// it: the block size that is really in force.
func Start(ctx context.Context, server *row.Server, blockSize int) []row.Finding {
	var findings []row.Finding
	for _, reader := range server.BlockSize {
		got, err := reader.Read(ctx)
		switch {
		case err != nil:
			findings = append(findings, row.Finding{
				Code: row.WitnessMissing, Phase: "start",
				Evidence: fmt.Sprintf("%s does not tell its block size: %v", reader.Server, err),
				Advice:   "check that the server is up and exports its configuration",
			})
		case got != blockSize:
			findings = append(findings, row.Finding{
				Code: row.BlockSizeIgnored, Phase: "start",
				Evidence: fmt.Sprintf("-blocksize=%d, but %s runs with %d", blockSize, reader.Server, got),
				Advice:   "use a size that the server supports; sizes that were only asked for compare nothing",
			})
		}
	}
	return findings
}

// WarmUp sends requests outside every plan through store and load until their
// time to first token is steady, so that the first cycle pays for no first
// use. It is bounded by rounds, not by success: what it does not reach, the
// cycles will show.
func WarmUp(ctx context.Context, server *row.Server, params fixtures.Params, concurrency int) error {
	const rounds, steady = 3, 1.25
	prompts := fixtures.WarmUp(params, concurrency)
	var last time.Duration
	for round := range rounds {
		var sum time.Duration
		for range 2 { // the second time through the cache
			timelines, _ := load.Closed(ctx, server.Client, requests("warmup", fmt.Sprint(round), prompts, 0), concurrency)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("warming up: %w", err)
			}
			for _, t := range timelines {
				if t.Status != row.OK {
					return fmt.Errorf("warming up: request %s: %s: %s", t.ID, t.Status, t.Err)
				}
				if d, ok := t.TTFT(); ok {
					sum += d
				}
			}
			if err := settle(ctx, server); err != nil {
				return fmt.Errorf("warming up: %w", err)
			}
		}
		if round > 0 && float64(last) < steady*float64(sum) && float64(sum) < steady*float64(last) {
			return nil
		}
		last = sum
	}
	return nil
}

func settle(ctx context.Context, server *row.Server) error {
	if err := quiet(ctx, server); err != nil {
		return err
	}
	return readable(ctx, server)
}

// quiet is the part of settling that moves no counter.
func quiet(ctx context.Context, server *row.Server) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := server.Cache.Settle(ctx); err != nil {
		return fmt.Errorf("waiting until stores can be read: %w", err)
	}
	return nil
}

// readable is the other part: what some servers have to be asked for.
func readable(ctx context.Context, server *row.Server) error {
	if server.Readable == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := server.Readable(ctx); err != nil {
		return fmt.Errorf("waiting until stores can be read: %w", err)
	}
	return nil
}
