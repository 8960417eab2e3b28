package run

import (
	"math"
	"time"

	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// An Anatomy says where the time to first token of a pass went, from when its
// schedule had a request due, or in a closed loop from when it was sent: means over its requests, in milliseconds, that
// add up to TTFT. A nil part is one that nobody tells; it is in FirstChunk then.
type Anatomy struct {
	Requests    int      `json:"requests"`
	ClientQueue float64  `json:"client_queue_ms"` // due, and not yet sent
	Connect     float64  `json:"connect_ms"`      // sent, until a connection was at hand
	ServerQueue *float64 `json:"server_queue_ms"` // by the server's counters, as the next two
	KVLoad      *float64 `json:"kv_load_ms"`
	Prefill     *float64 `json:"prefill_ms"`     // without the load
	FirstChunk  float64  `json:"first_chunk_ms"` // the rest: from the first token at the server to its chunk here, HTTP both ways
	TTFT        float64  `json:"ttft_ms"`

	LoadBytesPerSecond *float64 `json:"kv_load_bytes_per_s"` // moved over waited for, of one request at a time
}

// anatomy takes a pass apart; nil where a request has no first token, so that
// sums over the server's requests and ours are not about the same ones.
func (y *cycle) anatomy(p Pass, before, after map[string]row.Snapshot) *Anatomy {
	a := &Anatomy{Requests: len(p.Timelines)}
	if a.Requests == 0 {
		return nil
	}
	mean := func(sum time.Duration) float64 {
		return float64(sum) / float64(time.Millisecond) / float64(a.Requests)
	}
	var queue, connect, ttft time.Duration
	for _, t := range p.Timelines {
		total, ok := t.TTFT()
		if !ok {
			return nil
		}
		ttft += total
		if wait, ok := t.QueueWait(); ok && p.Offered > 0 { // in a closed loop a request waits for the one before it
			queue, ttft = queue+wait, ttft+wait
		}
		if !t.Connected.IsZero() {
			connect += max(0, t.Connected.Sub(t.Sent))
		}
	}
	a.ClientQueue, a.Connect, a.TTFT = mean(queue), mean(connect), mean(ttft)
	a.FirstChunk = a.TTFT - a.ClientQueue - a.Connect
	y.serverTimes(a, before, after)
	if a.KVLoad != nil && *a.KVLoad > 0 && y.server.TokenBytes > 0 {
		for _, l := range p.Witnesses {
			if l.Witness == verdict.Load && l.State == row.Known {
				rate := l.Hits * float64(y.server.TokenBytes) / (*a.KVLoad * float64(a.Requests) / 1e3)
				a.LoadBytesPerSecond = &rate
			}
		}
	}
	return a
}

// serverTimes takes what the server tells out of the rest. Its sums count only
// if they are over as many requests as ours.
func (y *cycle) serverTimes(a *Anatomy, before, after map[string]row.Snapshot) {
	names := y.server.Anatomy
	if names == nil {
		return
	}
	read := func(name string) (float64, bool) {
		if name == "" {
			return 0, false
		}
		v, state := probe.Delta(before[names.Probe], after[names.Probe], name, nil)
		return v, state == row.Known
	}
	if n, known := read(names.Requests); !known || n != float64(a.Requests) {
		return
	}
	part := func(name string) *float64 {
		seconds, known := read(name)
		if !known {
			return nil
		}
		ms := seconds * 1e3 / float64(a.Requests)
		return &ms
	}
	a.ServerQueue, a.KVLoad, a.Prefill = part(names.Queue), part(names.Load), part(names.Prefill)
	if a.Prefill != nil && a.KVLoad != nil {
		*a.Prefill = math.Max(0, *a.Prefill-*a.KVLoad)
	}
	for _, ms := range []*float64{a.ServerQueue, a.KVLoad, a.Prefill} {
		if ms != nil {
			a.FirstChunk -= *ms
		}
	}
}

// disagrees says that the server accounts for more time than the client saw
// pass: one of the two clocks, or of the counters, is wrong.
func (a *Anatomy) disagrees() bool { return a != nil && a.FirstChunk < -timeTolerance*a.TTFT-1 }

// timeTolerance is the share of the time to first token by which the server's
// sums may exceed it: they are taken at other moments than ours.
const timeTolerance = 0.05
