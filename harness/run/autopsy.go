package run

import (
	"context"

	"github.com/kvproof/kvproof/harness/row"
)

// autopsy tells a server that died from one that broke a connection and lives:
// both look alike to the request. A server is dead if its engine's counters
// cannot be read any more.
func (y *cycle) autopsy(ctx context.Context, findings []row.Finding, unreadable []row.Finding) []row.Finding {
	for i, f := range findings {
		switch {
		case ctx.Err() != nil:
		case len(unreadable) > 0 && (f.Code == row.Truncated || f.Code == row.RequestFailed):
			findings[i].Code = row.ServerDied
			findings[i].Evidence += "; and " + unreadable[0].Evidence
			findings[i].Advice = "look at the end of the server's log"
		case len(unreadable) == 0 && f.Code == row.ServerDied:
			findings[i].Code = row.RequestFailed
			findings[i].Evidence += "; the server still shows its counters"
			findings[i].Advice = "it closes connections without an answer: look at its limits, and at proxies in between"
		}
	}
	return findings
}
