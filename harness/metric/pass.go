package metric

import (
	"fmt"
	"math"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A Pass is what one pass over a plan measured, or several pooled.
type Pass struct {
	Timelines    []row.Timeline
	Elapsed      time.Duration // over the requests only
	HitTokens    int
	PromptTokens int
	Offered      float64 // requests per second of the schedule; 0: a closed loop, which has none
}

// Add pools another pass of the same phase.
func (p *Pass) Add(timelines []row.Timeline, elapsed time.Duration, hitTokens, promptTokens int) {
	p.Timelines = append(p.Timelines, timelines...)
	p.Elapsed += elapsed
	p.HitTokens += hitTokens
	p.PromptTokens += promptTokens
}

// Cycle is the line of a cycle: both phases, the hit rates, and how many of
// compared requests matched. What there are no data for is left out. An error
// means that a number cannot be true.
func Cycle(cold, warm Pass, matches, compared int) ([]Metric, error) {
	var l list
	l.phase(Cold, cold)
	l.phase(Warm, warm)
	l.percent(ColdHit, cold.HitTokens, cold.PromptTokens)
	l.percent(Hit, warm.HitTokens, warm.PromptTokens)
	l.percent(Match, matches, compared)
	if l.err != nil {
		return nil, fmt.Errorf("summing up a cycle: %w", l.err)
	}
	return l.metrics, nil
}

// Phase is the part of a line that belongs to one phase.
func Phase(phase string, p Pass) ([]Metric, error) {
	var l list
	l.phase(phase, p)
	if l.err != nil {
		return nil, fmt.Errorf("summing up the %s pass: %w", phase, l.err)
	}
	return l.metrics, nil
}

// phase adds the times and rates of one phase, from the requests that ended
// properly: one that failed early must not make a server look fast.
func (l *list) phase(phase string, p Pass) {
	var ok []row.Timeline
	for _, t := range p.Timelines {
		if t.Status == row.OK {
			ok = append(ok, t)
		}
	}
	if len(ok) == 0 {
		return
	}
	if ttft := durations(ok, row.Timeline.TTFT); len(ttft) > 0 {
		l.add(In(phase, MeanTTFT), Mean(ttft))
		l.add(In(phase, P50TTFT), float64(Percentile(ttft, 0.5)))
		if len(ttft) >= P99From {
			l.add(In(phase, P99TTFT), float64(Percentile(ttft, 0.99)))
		}
	}
	if p.Offered > 0 {
		l.schedule(phase, ok, p.Offered)
	}
	if itl, valid := InterTokenLatencies(ok); valid {
		l.add(In(phase, P50ITL), Percentile(itl, 0.5))
	}
	if e2e := durations(ok, row.Timeline.E2E); len(e2e) > 0 {
		l.add(In(phase, P50E2E), float64(Percentile(e2e, 0.5)))
	}
	// Without a duration these are infinite, which New refuses.
	l.add(In(phase, Requests), float64(len(ok))/p.Elapsed.Seconds())
	if tokens, known := promptTokens(ok); known {
		l.add(In(phase, PromptTokens), float64(tokens)/p.Elapsed.Seconds())
	}
}

// schedule adds what only a schedule gives: latencies from when requests were
// due, and what lay between that and the send.
func (l *list) schedule(phase string, ok []row.Timeline, offered float64) {
	if ttft := durations(ok, row.Timeline.ScheduledTTFT); len(ttft) > 0 {
		l.add(In(phase, MeanScheduledTTFT), Mean(ttft))
		l.add(In(phase, P50ScheduledTTFT), float64(Percentile(ttft, 0.5)))
		if len(ttft) >= P99From {
			l.add(In(phase, P99ScheduledTTFT), float64(Percentile(ttft, 0.99)))
		}
	}
	if e2e := durations(ok, row.Timeline.ScheduledE2E); len(e2e) > 0 {
		l.add(In(phase, P50ScheduledE2E), float64(Percentile(e2e, 0.5)))
	}
	if queue := durations(ok, row.Timeline.QueueWait); len(queue) > 0 {
		l.add(In(phase, MeanQueue), Mean(queue))
	}
	if late := durations(ok, row.Timeline.Lateness); len(late) > 0 {
		l.add(In(phase, P50Late), float64(Percentile(late, 0.5)))
		l.add(In(phase, MaxLate), float64(Percentile(late, 1)))
	}
	if !math.IsInf(offered, 1) { // all due at once offer no rate
		l.add(In(phase, Offered), offered)
	}
}

func durations(timelines []row.Timeline, of func(row.Timeline) (time.Duration, bool)) []time.Duration {
	var ds []time.Duration
	for _, t := range timelines {
		if d, ok := of(t); ok {
			ds = append(ds, d)
		}
	}
	return ds
}

// promptTokens is what the server says it was sent; unknown if any answer does
// not say.
func promptTokens(timelines []row.Timeline) (sum int, known bool) {
	for _, t := range timelines {
		if t.Usage == nil {
			return 0, false
		}
		sum += t.Usage.PromptTokens
	}
	return sum, true
}
