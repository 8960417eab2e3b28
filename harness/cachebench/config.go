// Package cachebench measures a cache server of LMCache by itself: how long it
// takes to look up, store and retrieve paged KV, and whether what comes back is
// what was stored. It does what `lmcache bench server` does, with several
// clients at once, and fails closed: a run in which anything went wrong has no
// numbers.
//
//	server, err := lmcmp.Discover(ctx, endpoints, "")
//	result, err := cachebench.Run(ctx, server, cachebench.Config{Shape: shape, Clients: 4, Requests: 100, Tokens: 512})
//	if !result.Valid() { … result.Findings … }
//
// A request of the operation pair is a prompt that goes through the server
// twice. Cold: it must miss entirely, is stored, and is asked for until it can
// be found, which is when it is visible. Warm: it must hit entirely, and is
// retrieved into other blocks than it was stored from, which were overwritten
// before. Then every byte is compared.
package cachebench

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp"
)

// An Operation says what the clients do.
type Operation struct {
	Kind  string  // OpPair, OpStore, OpRetrieve or OpMixed
	Share float64 // OpMixed: of retrieves, the rest are stores
}

// Kinds of operations.
const (
	OpPair     = "pair"     // each prompt cold and warm
	OpStore    = "store"    // new prompts; the last ones are read back when the clock has stopped
	OpRetrieve = "retrieve" // prompts that were stored before the clock started
	OpMixed    = "mixed"    // both at once
)

// ParseOperation reads pair, store, retrieve, or mixed@0.5.
func ParseOperation(text string) (Operation, error) {
	kind, share, mixed := strings.Cut(text, "@")
	switch {
	case !mixed && (kind == OpPair || kind == OpStore || kind == OpRetrieve):
		return Operation{Kind: kind}, nil
	case mixed && kind == OpMixed:
		r, err := strconv.ParseFloat(share, 64)
		if err == nil && r > 0 && r < 1 {
			return Operation{OpMixed, r}, nil
		}
		return Operation{}, fmt.Errorf("operation %q: the share of retrieves is between 0 and 1", text)
	}
	return Operation{}, fmt.Errorf("operation %q: there are pair, store, retrieve, mixed@R with a share R of retrieves", text)
}

func (o Operation) String() string {
	if o.Kind == OpMixed {
		return fmt.Sprintf("%s@%g", o.Kind, o.Share)
	}
	return o.Kind
}

// A Config is a run.
type Config struct {
	Shape    lmcmp.Shape
	Transfer lmcmp.Transfer // empty: lmcmp.Auto
	Op       Operation      // zero: pair

	Clients  int           // 0: one
	Workers  int           // tensor-parallel workers of each client; 0: one
	Tokens   int           // in a prompt, all of which are sent
	Start    int           // number of the first sequence; it decides tokens and content
	Requests int           // of all clients together; 0: until the context ends
	Interval time.Duration // pause of a client after each pass
	Rate     float64       // requests a second of all clients together; 0: each when the one before has ended

	Model    string        // in the keys
	Salt     string        // cache salt: with a fresh one everything is cold
	Seed     uint64        // of the content
	Limit    bool          // measure, after the run, how fast this machine copies as many bytes as a request has
	Patience time.Duration // for one call, and for a store to become visible; 0: 10 s

	GPU       bool                                           // KV on a GPU
	NewMemory func(client, worker int) (lmcmp.Memory, error) // nil: memory of this machine

	// Progress is told about each request in words; nil: nobody is.
	Progress func(line string)
}

const (
	defaultPatience = 10 * time.Second
	// Prewarmed is how many prompts a client keeps in the server for the
	// operations that begin with some.
	Prewarmed = 8
	// readBack is how many of its last stores a client reads back.
	readBack = 4
)

func (c Config) withDefaults() Config {
	c.Op.Kind = cmp.Or(c.Op.Kind, OpPair)
	c.Transfer = cmp.Or(c.Transfer, lmcmp.Auto)
	c.Clients, c.Workers = cmp.Or(c.Clients, 1), cmp.Or(c.Workers, 1)
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

// check refuses what cannot be run on that server, before anything is made.
func (c Config) check(s *lmcmp.Server) error {
	switch {
	case c.Clients < 1 || c.Workers < 1:
		return fmt.Errorf("%d clients of %d workers: at least one of each", c.Clients, c.Workers)
	case c.Requests < 0 || c.Start < 0:
		return fmt.Errorf("%d requests from sequence %d on: must not be negative", c.Requests, c.Start)
	case c.Requests > 0 && c.Requests < c.Clients:
		return fmt.Errorf("%d requests for %d clients: at least one each", c.Requests, c.Clients)
	case c.Rate < 0 || c.Interval < 0 || c.Patience < 0:
		return errors.New("a rate, an interval or a patience is negative")
	case c.Rate > 0 && c.Interval > 0:
		return errors.New("a rate and an interval: one of the two paces the requests")
	case c.Tokens < s.Chunk:
		return fmt.Errorf("prompts of %d tokens have no whole chunk of the server's %d tokens, so nothing would be cached", c.Tokens, s.Chunk)
	case s.Workers > 0 && c.Clients*c.Workers > s.Workers:
		return fmt.Errorf("%d clients of %d workers are more connections than the server works off at once, which are %d (its --max-gpu-workers)", c.Clients, c.Workers, s.Workers)
	}
	if err := c.Shape.CheckChunk(s.Chunk); err != nil {
		return err
	}
	bands, err := c.Shape.Bands(c.Clients)
	if err != nil {
		return err
	}
	if need := c.blocks(s); bands[0].Count < need {
		return fmt.Errorf("a prompt of %d tokens takes %d blocks; %d of the KV shape %s, less the null block and shared by %d clients, leave %d each", c.Tokens, need, c.Shape.Blocks(), c.Shape, c.Clients, bands[0].Count)
	}
	return nil
}

// blocks is the number of paged blocks under a prompt's whole chunks.
func (c Config) blocks(s *lmcmp.Server) int {
	return c.Tokens / s.Chunk * s.Chunk / c.Shape.BlockSize()
}
