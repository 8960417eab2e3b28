package paced

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A Probe is one stream of requests whose true times are known, beside a load
// that is measured: what the client sees of it is wrong by as much as what it
// sees of the load.
type Probe struct {
	server *Process
	client row.Client
	last   atomic.Bool // no request follows the one under way
	ended  chan []time.Duration
}

// probeOutput is how many tokens each request of a probe has.
const probeOutput = 8

// StartProbe begins the stream, which goes on until Stop. The server answers
// nobody else meanwhile.
func StartProbe(ctx context.Context, server *Process, client row.Client) (*Probe, error) {
	if err := server.Forget(ctx); err != nil {
		return nil, err
	}
	p := &Probe{server: server, client: client, ended: make(chan []time.Duration, 1)}
	go func() { p.ended <- p.ask(ctx) }() // ends with Stop, or ctx
	return p, nil
}

// ask returns the times to first token of the requests that were answered.
func (p *Probe) ask(ctx context.Context) (seen []time.Duration) {
	prompt := []int32{100, 101, 102, 103}
	for i := 0; !p.last.Load(); i++ {
		t := p.client.Do(ctx, row.Request{ID: fmt.Sprintf("probe-%d", i), Prompt: prompt, MaxTokens: probeOutput, IgnoreEOS: true})
		d, ok := t.TTFT()
		if t.Status != row.OK || !ok {
			break
		}
		seen = append(seen, d)
	}
	return seen
}

// Stop lets the request under way end, and returns by how much the time to first
// token of each was seen too long, in order.
func (p *Probe) Stop(ctx context.Context) ([]time.Duration, error) {
	p.last.Store(true)
	seen := <-p.ended
	truth, err := p.server.Truth(ctx)
	if err != nil {
		return nil, err
	}
	wrong := make([]time.Duration, 0, len(seen))
	for i := range min(len(seen), len(truth.Records)) {
		wrong = append(wrong, seen[i]-truth.Records[i].TTFT)
	}
	return wrong, nil
}
