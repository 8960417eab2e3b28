package run

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/harness/row"
)

// between looks at what the counters did since the pass before, when this run
// sent nothing: a server that started anew has lost what it held, and one that
// was asked has other clients.
func (y *cycle) between(phase string, now map[string]row.Snapshot) []row.Finding {
	if y.last == nil || y.server.Shared { // others may do as they like with it
		return nil
	}
	var findings []row.Finding
	for _, w := range y.server.Witnesses {
		switch c := w.Count(y.last[w.Probe], now[w.Probe]); {
		case c.State == row.Restarted:
			findings = append(findings, row.Finding{
				Code: row.CounterReset, Phase: phase,
				Evidence: fmt.Sprintf("%s (%s of %s) started anew between the pass before and this one", w.Name, w.Source, w.Probe),
				Advice:   "find out why the server restarted; what it held in memory is gone, and its counters say nothing about this pass",
			})
		case c.State == row.Known && c.HasQueries && c.Queries > 0:
			findings = append(findings, row.Finding{
				Code: row.ForeignTraffic, Phase: phase,
				Evidence: fmt.Sprintf("%s (%s of %s) was asked for %v tokens between two passes, when this run sent nothing", w.Name, w.Source, w.Probe, c.Queries),
				Advice:   "somebody else uses the server",
			})
		}
	}
	return findings
}

// unasked names witnesses that were asked for nothing while this run sent so
// many prompt tokens: then the cache is not connected, and misses are no fault
// of what it keeps.
func (y *cycle) unasked(ctx context.Context, before map[string]row.Snapshot, tokens int) {
	now, _ := y.snapshots(ctx, "reset")
	for _, w := range y.server.Witnesses {
		if c := w.Count(before[w.Probe], now[w.Probe]); c.State == row.Known && c.HasQueries && c.Queries == 0 {
			y.found(row.Finding{
				Code: row.NoQueries, Phase: "reset",
				Evidence: fmt.Sprintf("%s (%s of %s) was asked for no tokens while prompts of %d tokens were sent", w.Name, w.Source, w.Probe, tokens),
				Advice:   "the engine does not ask the cache: look at how its connector was configured, and at its log for one that was switched off",
			})
		}
	}
}
