package daser

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// maxMismatches bounds the list of a report; Damaged goes on counting.
const maxMismatches = 64

// A Check holds what loads deliver against KV that it computes itself. It is a
// [kv.Store] around a store and whatever damages it, so it sees what the
// engine sees.
//
// Chunk reuse makes answers differ from those of a recompute, so outputs prove
// nothing there; the KV still does. A document's reference is its prefill
// alone from position 0, in a pass of the check's own, with the keys turned to
// where the document is by a formula written anew in float64. Values must
// agree bit for bit, and so must keys that were not moved. Keys that were may
// differ by 2^-22 of the length of their pair, which is what a rotation in
// float32 can be off (see model.RotateKeys): damage below that is not seen.
//
// A check computes as much as a prefill of the documents, within the load, so
// it is switched on where nothing is timed.
type Check struct {
	inner kv.Store
	mode  Mode
	model *model.Model
	size  int // B

	mu     sync.Mutex
	on     bool
	report Report
}

// A Report is what a check has seen since it was switched on.
type Report struct {
	On         bool       `json:"on"`
	Chunks     int        `json:"chunks"`  // that were delivered and compared
	Tokens     int        `json:"tokens"`  // of those
	Damaged    int        `json:"damaged"` // chunks with a mismatch, and loads of what no chunk holds
	Mismatches []Mismatch `json:"mismatches"`
	Errors     []string   `json:"errors"` // what could not be compared
}

// A Mismatch is the first value of a plane of a chunk that is not what it
// should be.
type Mismatch struct {
	Request string `json:"request"`
	Chunk   string `json:"chunk_key"` // empty: no stored chunk holds the token
	Token   int    `json:"token"`     // in the prompt
	Layer   int    `json:"layer"`
	Plane   string `json:"plane"` // keys or values
	Index   int    `json:"index"` // of the value within the token's plane
	Got     string `json:"got"`
	Want    string `json:"want"`
}

func (m Mismatch) String() string {
	if m.Chunk == "" {
		return fmt.Sprintf("request %s: tokens from %d on are in no stored chunk", m.Request, m.Token)
	}
	return fmt.Sprintf("request %s, chunk %s: %s of token %d in layer %d differ from value %d on: %s, want %s",
		m.Request, m.Chunk, m.Plane, m.Token, m.Layer, m.Index, m.Got, m.Want)
}

// NewCheck wraps inner, through which s is reached, and which passes contexts
// on. It is off.
func NewCheck(inner kv.Store, s *Store) *Check {
	return &Check{inner: inner, mode: s.cfg.Mode, model: s.cfg.Model, size: s.cfg.BlockSize}
}

// Switch turns the check on or off. Turning it on begins a new report.
func (c *Check) Switch(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.report = Report{}
	}
	c.on = on
}

// Report returns what was seen so far.
func (c *Check) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.report
	r.On = c.on
	r.Mismatches = append([]Mismatch{}, r.Mismatches...)
	r.Errors = append([]string{}, r.Errors...)
	return r
}

// Chunk is that of the store.
func (c *Check) Chunk() int { return c.inner.Chunk() }

// Lookup passes the lookup on.
func (c *Check) Lookup(ctx context.Context, r kv.Request) (int, error) { return c.inner.Lookup(ctx, r) }

// Store passes the store on.
func (c *Check) Store(ctx context.Context, r kv.Request, src [][]float32) error {
	return c.inner.Store(ctx, r, src)
}

// Reset passes the reset on.
func (c *Check) Reset(ctx context.Context) error { return c.inner.Reset(ctx) }

// Load passes the load on and compares what came. A mismatch changes nothing
// for the engine: damage is to have its effect.
func (c *Check) Load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) error {
	var hits []Hit
	if err := c.inner.Load(context.WithValue(ctx, delivered{}, &hits), r, tokens, dst); err != nil {
		return err
	}
	c.mu.Lock()
	on := c.on
	c.mu.Unlock()
	if !on {
		return nil
	}
	if c.mode == Prefix && len(hits) > 0 {
		// Blocks of one prompt are one text, read as a whole.
		hits = []Hit{{Key: hits[0].Key, Tokens: covered(hits)}}
	}
	c.compare(r, tokens, hits, dst)
	return nil
}

// compare checks each chunk of a load.
func (c *Check) compare(r kv.Request, tokens int, hits []Hit, dst [][]float32) {
	if tokens > covered(hits) {
		c.count(0, 0, []Mismatch{{Request: r.ID, Token: covered(hits)}})
	}
	for _, h := range hits {
		if h.Offset >= tokens {
			return
		}
		// A chunk is loaded by whole blocks, as far as dst reaches.
		n := min(h.Tokens, (tokens+c.size-1)/c.size*c.size-h.Offset)
		want, err := c.reference(r.Tokens[h.Offset : h.Offset+n])
		if err != nil {
			c.fail(fmt.Errorf("computing the reference of %d tokens of request %s: %w", n, r.ID, err))
			continue
		}
		found := c.against(want, h.Offset, n, dst[h.Offset/c.size:]) // not where the store says that it moved it
		for i := range found {
			found[i].Request, found[i].Chunk = r.ID, h.Key.String()
			found[i].Token += h.Offset
		}
		c.count(1, n, found)
	}
}

func (c *Check) count(chunks, tokens int, found []Mismatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Chunks += chunks
	c.report.Tokens += tokens
	if len(found) > 0 {
		c.report.Damaged++
	}
	room := maxMismatches - len(c.report.Mismatches)
	c.report.Mismatches = append(c.report.Mismatches, found[:min(len(found), room)]...)
}

func (c *Check) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.report.Errors) < maxMismatches {
		c.report.Errors = append(c.report.Errors, err.Error())
	}
}
