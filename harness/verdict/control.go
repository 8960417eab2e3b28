package verdict

import (
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

const (
	// alpha is the chance of an alarm that a test of a proof may give where
	// nothing is wrong.
	alpha = 0.05
	// cycleAlpha is that of a timed cycle, of which a run has many.
	cycleAlpha = 0.001
	// beyond is how many times the controls' largest shift a logprob has to
	// move to be beyond them. Both are maxima of a few hundred positions, so
	// that the larger of two without a fault is either one; four times is not
	// reached by chance where shifts have a scale at all.
	beyond = 4
	// fewest is the number of pairs below which the exact test could not call
	// anything out, even if every pair spoke against the cache.
	fewest = 5
	// tiedLimit is the share of tied requests beyond which ties stop proving,
	// tiedFailure the one beyond which outputs say nothing at all.
	tiedLimit, tiedFailure = 0.2, 0.5
	// roundings is the largest shift of a logprob or gap of two of them, in nats,
	// that a few roundings explain: bfloat16 logits between 4 and 16 are 1/32 to
	// 1/16 apart, and vLLM on two threads, which moves few answers where few
	// run side by side, was seen to move them by one such step.
	roundings = 0.125
)

// Noise is what controls show: how far answers move without a fault.
type Noise struct {
	Pairs      int     `json:"pairs"`
	Diverged   int     `json:"diverged"`
	Moved      int     `json:"moved"`       // pairs that parted or any of whose logprobs moved
	MaxGap     float64 `json:"max_gap"`     // of the top two tokens where answers parted
	Logprobs   int     `json:"logprobs"`    // pairs that have some: without, nothing is known of the rest
	MaxShift   float64 `json:"max_shift"`   // of a logprob before and where they parted, in nats
	FirstMoved int     `json:"first_moved"` // pairs whose first token's logprobs moved

	gaps    int // pairs that parted where the gap is known
	shifted int // pairs whose logprobs moved where both sides saw the same context
}

// NoiseOf reads controls, or counts the same of any comparison. Pairs that
// failed are left out.
func NoiseOf(controls ...Comparison) Noise {
	var n Noise
	for _, control := range controls {
		for _, p := range control.Pairs {
			if p.Failed == "" {
				n.add(p)
			}
		}
	}
	return n
}

func (n *Noise) add(p Pair) {
	n.Pairs++
	shifted := p.Logprobs != nil && p.Logprobs.Differing > 0
	if p.Divergence >= 0 || shifted {
		n.Moved++
	}
	if p.Divergence >= 0 {
		n.Diverged++
		if p.TopGap != nil {
			n.gaps++
			n.MaxGap = max(n.MaxGap, *p.TopGap)
		}
	}
	if p.Logprobs == nil {
		return
	}
	n.Logprobs++
	if shifted {
		n.shifted++
	}
	n.MaxShift = max(n.MaxShift, p.Logprobs.largest())
	if p.Logprobs.first() > 0 {
		n.FirstMoved++
	}
}

// settled says that at least half of the answers moved, so that the largest
// movement is that of many. Of an engine that moves few of them the largest of
// the next pass may be many times as large, or the first that there is.
func (n Noise) settled() bool { return 2*n.Moved >= n.Pairs }

// gap is the largest gap of the top two tokens that noise may close: one that
// it did close, or one that two shifts in opposite directions would.
func (n Noise) gap() float64 { return max(n.MaxGap, 2*n.MaxShift) }

// shift is the largest shift that noise explains.
func (n Noise) shift() float64 { return beyond * n.MaxShift }

// RefuseControl is why a control must not be used: an arm that hit a cache, or
// hit other than it was meant to, is none. It returns nothing for a good one.
func RefuseControl(arm string, timelines []row.Timeline, expected fixtures.Interval) []row.Finding {
	hits := 0
	for _, t := range timelines {
		if t.Status != row.OK {
			return []row.Finding{{
				Code: row.ControlRefused, Phase: arm, Request: t.ID,
				Evidence: fmt.Sprintf("a request of the control arm ended as %s", t.Status),
				Advice:   "without controls nobody knows how often outputs differ by themselves",
			}}
		}
		cached, known := t.Cached()
		if !known {
			return []row.Finding{{
				Code: row.ControlRefused, Phase: arm, Request: t.ID,
				Evidence: "usage does not say how many prompt tokens were cached, so nobody knows what the control arm computed",
				Advice:   "switch prompt-token details on at the server",
			}}
		}
		hits += cached
	}
	if expected.Contains(hits) {
		return nil
	}
	return []row.Finding{{
		Code: row.ControlRefused, Phase: arm,
		Evidence: fmt.Sprintf("the control arm hit %d tokens, it must hit %s", hits, expected),
		Advice:   "a control that uses the cache otherwise than it is meant to would excuse what the cache does wrong",
	}}
}

// parted counts the pairs of which only one comparison parts.
func parted(c, control Comparison) (onlyHere, onlyThere, pairs int) {
	for i, p := range c.Pairs {
		if i >= len(control.Pairs) || p.Failed != "" || control.Pairs[i].Failed != "" {
			continue
		}
		pairs++
		switch here, there := p.Divergence >= 0, control.Pairs[i].Divergence >= 0; {
		case here && !there:
			onlyHere++
		case there && !here:
			onlyThere++
		}
	}
	return onlyHere, onlyThere, pairs
}
