package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

const (
	// saturated is the share of a pass for which all connections that there
	// were had a request on them, above which it was they that limited the load.
	saturated = 0.8
	// enough is how many requests for each that should be in flight are needed
	// to tell a limit from a client that was late once.
	enough = 3
)

// delivered checks that as many requests were with the server at one time as
// the plan asks for: a pool that silently holds fewer connections shows here,
// by when each request had a connection. A server that answers faster than
// requests can be started is no such limit: its connections are idle in
// between.
func delivered(phase string, timelines []row.Timeline, elapsed time.Duration, want int) []row.Finding {
	type change struct {
		at    time.Time
		delta int
	}
	var changes []change
	var busy time.Duration
	for _, t := range timelines {
		start, end := t.Connected, t.End
		if start.IsZero() {
			start = t.Sent
		}
		if start.IsZero() || end.Before(start) {
			continue
		}
		changes = append(changes, change{start, 1}, change{end, -1})
		busy += end.Sub(start)
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta // one that ends makes room for one that starts
	})
	now, peak := 0, 0
	for _, c := range changes {
		now += c.delta
		peak = max(peak, now)
	}
	if peak == 0 || peak >= want || len(timelines) < enough*want || float64(busy) < saturated*float64(peak)*float64(elapsed) {
		return nil
	}
	return []row.Finding{{
		Code: row.LoadNotDelivered, Phase: phase,
		Evidence: fmt.Sprintf("at most %d requests were with the server at one time, the plan asks for %d", peak, want),
		Advice:   "something between here and the server limits connections",
	}}
}
