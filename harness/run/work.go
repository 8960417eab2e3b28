package run

import (
	"fmt"
	"math"

	"github.com/kvproof/kvproof/harness/row"
)

// workTolerance is the relative difference that rounding may leave in a
// counter of floating-point operations.
const workTolerance = 1e-3

// worked checks that the engine computed what the reported hits leave to
// compute. Usage and counters come from the same account of a hit; the work is
// counted where it is done.
func (y *cycle) worked(p *Pass, before, after map[string]row.Snapshot) []row.Finding {
	work := y.server.Work
	if work == nil || p.failed() {
		return nil
	}
	expected := 0.0
	for i, t := range p.Timelines {
		cached, ok := t.Cached()
		if !ok || t.Usage == nil {
			return nil // a missing witness, which has its own finding
		}
		expected += work.Expected(len(p.Requests[i].Prompt), cached, t.Usage.CompletionTokens)
	}
	count := work.Count(before[work.Probe], after[work.Probe])
	if count.State != row.Known {
		return []row.Finding{{
			Code: row.WitnessMissing, Phase: p.Phase,
			Evidence: fmt.Sprintf("the engine's work (%s of %s) is %s", work.Source, work.Probe, count.State),
			Advice:   "check that the server exports it and still lives",
		}}
	}
	if math.Abs(count.Hits-expected) <= workTolerance*expected {
		return nil
	}
	return []row.Finding{{
		Code: row.WorkDiffers, Phase: p.Phase,
		Evidence: fmt.Sprintf("the engine computed %.4g (%s of %s), %.3f times what its prompts need after the hits that it reports", count.Hits, work.Source, work.Probe, count.Hits/expected),
		Advice:   "above 1 a hit was reported and recomputed; below 1 something was not computed that had to be",
	}}
}
