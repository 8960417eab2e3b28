package run

import (
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
)

// A ClientError is by how much the client itself is wrong about the time to
// first token at the load of a cycle: 99th percentiles.
type ClientError struct {
	Before    time.Duration `json:"before_ns"`    // at the same concurrency, on a server whose times are known, before the run
	During    time.Duration `json:"during_ns"`    // of one stream to that server beside the requests of the cycle
	Scheduler time.Duration `json:"scheduler_ns"` // that a goroutine of this process waited to run meanwhile
}

// P99 is the larger of the two errors that were measured.
func (e ClientError) P99() time.Duration { return max(e.Before, e.During, 0) }

// boundShare is the share of a difference that the client's error may be.
const boundShare = 0.1

// ClientBound says that a client's error is over a tenth of a difference that
// is shown: it may be the client's.
func ClientBound(clientP99, difference time.Duration) bool {
	return float64(clientP99) > boundShare*float64(max(difference, -difference))
}

// Bind takes the client's error into the result, and labels it where the
// difference between its cold and its warm pass may be the client's. A row that
// has nothing to hit shows no difference.
func (r *Result) Bind(e ClientError) {
	r.Client = &e
	cold, warm := medianTTFT(r.Cold), medianTTFT(r.Warm)
	if r.Warm.HitTokens > 0 && ClientBound(e.P99(), cold-warm) {
		r.Labels = append(r.Labels, row.ClientBound)
	}
}

func medianTTFT(p Pass) time.Duration {
	var ttft []time.Duration
	for _, t := range p.Timelines {
		if d, ok := t.TTFT(); ok {
			ttft = append(ttft, d)
		}
	}
	if len(ttft) == 0 {
		return 0
	}
	return metric.Percentile(ttft, 0.5)
}
