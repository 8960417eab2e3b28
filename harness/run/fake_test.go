package run_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

const block = 16

// A fake is a server in memory: a prefix cache of whole blocks whose tokens
// are the prompt's checksum, and whose faults are functions that a test sets.
type fake struct {
	mu      sync.Mutex
	stored  map[string]bool // prompts' prefixes, as text
	log     []string        // what was asked of it, in order
	counter row.Series

	answer func(row.Request, *row.Timeline) // changes an answer
	reset  func() error                     // in place of a reset
	settle error
	wrong  float64 // added to the counter with each request
	dead   bool    // its counters cannot be read

	skipStores bool              // says that what skips it is kept, which is so
	reopen     *row.CacheRestart // nil: it cannot be restarted
}

func (f *fake) Do(ctx context.Context, r row.Request) row.Timeline {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, r.ID)
	now := time.Now()
	t := row.Timeline{ID: r.ID, Status: row.OK, HTTP: 200, Scheduled: now, Sent: now, FinishReason: "length"}
	if ctx.Err() != nil {
		t.Status, t.Err = row.Cancelled, ctx.Err().Error()
		return t
	}
	cached := 0
	for n := block; n <= len(r.Prompt); n += block {
		if key := fmt.Sprint(r.Prompt[:n]); f.stored[key] {
			cached = n
		} else {
			f.stored[key] = true
		}
	}
	cached = min(cached, (len(r.Prompt)-1)/block*block)
	f.counter.Value += float64(cached) + f.wrong
	sum := int32(0)
	for _, id := range r.Prompt {
		sum = sum*31 + id
	}
	for i := range r.MaxTokens {
		t.Tokens = append(t.Tokens, 8+int32(uint32(sum+int32(i)*7)%1000))
		if r.Logprobs > 0 {
			t.Logprobs = append(t.Logprobs, row.TokenLogprob{Logprob: -float64(i + 1), Top: []float64{-float64(i + 1)}})
		}
		t.Chunks = append(t.Chunks, row.Chunk{At: now.Add(time.Duration(i+1) * time.Millisecond), Tokens: 1})
	}
	t.FirstToken, t.LastToken = now.Add(time.Millisecond), now.Add(time.Duration(r.MaxTokens)*time.Millisecond)
	t.Usage = &row.Usage{PromptTokens: len(r.Prompt), CompletionTokens: r.MaxTokens, CachedTokens: &cached}
	if f.answer != nil {
		f.answer(r, &t)
	}
	return t
}

func (f *fake) Cold(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, "cold")
	if f.reset != nil {
		return f.reset()
	}
	clear(f.stored)
	return nil
}

func (f *fake) Settle(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, "settle")
	return f.settle
}

func (f *fake) Name() string { return "engine" }

func (f *fake) Snapshot(context.Context) (row.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, "snapshot")
	if f.dead {
		return row.Snapshot{}, fmt.Errorf("connection refused")
	}
	return row.Snapshot{Probe: "engine", Series: []row.Series{f.counter}}, nil
}

func (f *fake) server() *row.Server {
	law := fixtures.VLLMLaw(block)
	return &row.Server{
		Row: "fake", URL: "http://127.0.0.1:1", Context: 1024, Vocab: 1024, Law: law, SkipStores: f.skipStores, Reopen: f.reopen,
		Client: f, Cache: f, Probes: []row.Probe{f},
		Witnesses: []row.Witness{{
			Name: "engine", Source: "hits", Law: law, Required: true, Probe: "engine",
			Count: func(before, after row.Snapshot) row.Count {
				return row.Count{Hits: after.Series[0].Value - before.Series[0].Value, State: row.Known}
			},
		}},
		BlockSize: []row.BlockSizeReader{{Server: "engine", Read: func(context.Context) (int, error) { return block, nil }}},
	}
}

func newFake() *fake {
	return &fake{stored: make(map[string]bool), counter: row.Series{Name: "hits"}}
}

// cell is a cell on the fake, changed by edit.
func (f *fake) cell(t *testing.T, edit ...func(*run.Config)) *run.Cell {
	t.Helper()
	workload, err := fixtures.ByName("unique")
	require.NoError(t, err)
	config := run.Config{
		Workload: workload, Concurrency: 2, Reuse: true, Reset: true, Exact: true, Logprobs: true, ProofRequests: 2,
		Params: fixtures.Params{Requests: 3, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024, Seed: 1},
	}
	for _, e := range edit {
		e(&config)
	}
	return run.NewCell(f.server(), config)
}

func codes(findings []row.Finding) (codes []row.Code) {
	for _, f := range findings {
		if !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}
