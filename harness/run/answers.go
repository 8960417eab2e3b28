package run

import (
	"fmt"
	"slices"
	"sync"

	"github.com/kvproof/kvproof/harness/row"
)

// Answers keep what a row without any cache answered, so that the cold passes
// of the other rows can be held to it: the plan of a cycle is the same in every
// row. A row that is wrong in both of its passes alike would never differ from
// itself. They are safe for concurrent use.
type Answers struct {
	mu   sync.Mutex
	kept map[string][][]int32 // by workload and cycle: token ids by request
}

// cold keeps the answers of a cold pass of a row without reuse, or holds those
// of another row to them where equal inputs give equal bits. What nobody
// recomputed before cannot be compared.
func (a *Answers) cold(c Config, server string, cycle int, p Pass) []row.Finding {
	if a == nil || !c.Exact || p.failed() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprintf("%s %d", c.Workload.Name, cycle)
	kept, known := a.kept[key]
	if !known {
		if c.Reuse {
			return nil
		}
		if a.kept == nil {
			a.kept = make(map[string][][]int32)
		}
		for _, t := range p.Timelines {
			a.kept[key] = append(a.kept[key], t.Tokens)
		}
		return nil
	}
	var findings []row.Finding
	for i, t := range p.Timelines {
		if i < len(kept) && !slices.Equal(t.Tokens, kept[i]) {
			findings = append(findings, row.Finding{
				Code: row.OutputDiffers, Phase: p.Phase, Request: p.Requests[i].ID,
				Evidence: fmt.Sprintf("the cold answer of %s is not the one that a row without a cache gave to the same prompt", server),
				Advice:   "the row computes with other KV, or over another prompt, even where nothing hits",
			})
		}
	}
	return findings
}
