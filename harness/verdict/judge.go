package verdict

import (
	"fmt"

	"github.com/kvproof/kvproof/harness/row"
)

// Options say how to judge a comparison.
type Options struct {
	MinTokens int    // compared tokens that each request needs to be called identical; 32 proves, below 1 counts as 1
	Exact     bool   // equal inputs give equal bits on this stack: any difference is a fault
	Logprobs  bool   // they were asked for: a request without them proves nothing
	Phase     string // of the findings; empty: warm

	// Control compares the cold pass with a repetition that did not use the
	// cache, pair by pair with the comparison that is judged. Nil: there is
	// none. It is not looked at where the stack is exact.
	Control *Comparison
}

// Judge gives the verdict on a comparison of cold and warm outputs, and a
// finding for each request that is corrupt. Requests that failed prove nothing
// and have their own findings (CheckRequest).
//
// Where the stack is not exact, a request that diverges is corrupt if its
// control does not diverge, a tie if its control parts at the same token and
// the best two tokens are exactly as likely there, and undecided otherwise.
func Judge(c Comparison, o Options) (Verdict, []row.Finding) {
	if o.Phase == "" {
		o.Phase = "warm"
	}
	var findings []row.Finding
	seen := make(map[Verdict]bool)
	for i, p := range c.Pairs {
		var control *Pair
		if o.Control != nil && i < len(o.Control.Pairs) {
			control = &o.Control.Pairs[i]
		}
		v, found := o.judge(p, control)
		seen[v] = true
		findings = append(findings, found...)
	}
	for _, v := range []Verdict{Corrupt, Undecided, Insufficient, NumericTie, Identical} {
		if seen[v] {
			return v, findings
		}
	}
	return Undecided, findings // no requests
}

func (o Options) judge(p Pair, control *Pair) (Verdict, []row.Finding) {
	if p.Failed != "" {
		return Insufficient, nil
	}
	if found := o.nulls(p); len(found) > 0 {
		return Corrupt, found
	}
	if p.Divergence >= 0 {
		v := o.divergent(p, control)
		if v == Corrupt {
			return v, []row.Finding{o.finding(row.OutputDiffers, p, differs(p),
				"ask both ways with the lines in the repro folder; wrong KV was served, or the wrong request's")}
		}
		return v, nil
	}
	if l := p.Logprobs; l != nil && l.Differing > 0 {
		if o.Exact {
			return Corrupt, []row.Finding{o.finding(row.LogprobShift, p, fmt.Sprintf(
				"all %d tokens agree, but logprobs differ at %d of %d positions, first at token %d, by at most %.3g",
				p.Compared, l.Differing, l.Compared, l.At, l.MaxShift),
				"a low bit of stored KV, or the order of its tokens, changed: tokens alone do not show it")}
		}
		if control == nil || control.Logprobs == nil || control.Logprobs.MaxShift < l.MaxShift {
			return Undecided, nil
		}
	}
	if p.Compared < max(o.MinTokens, 1) || o.Logprobs && (p.Logprobs == nil || p.Logprobs.Compared < p.Compared) {
		return Insufficient, nil
	}
	return Identical, nil
}

// divergent judges a pair whose outputs differ.
func (o Options) divergent(p Pair, control *Pair) Verdict {
	switch {
	case o.Exact:
		return Corrupt
	case control == nil || control.Failed != "":
		return Undecided
	case control.Divergence == p.Divergence && p.TopGap != nil && *p.TopGap == 0:
		return NumericTie
	case control.Divergence < 0 && (p.TopGap == nil || *p.TopGap > 0):
		return Corrupt
	}
	return Undecided
}

// nulls are findings wherever a logprob is null: the model's output was not a
// number there, cold or warm.
func (o Options) nulls(p Pair) []row.Finding {
	if p.Logprobs == nil || p.Logprobs.ColdNull < 0 && p.Logprobs.WarmNull < 0 {
		return nil
	}
	where := func(at int) string {
		if at < 0 {
			return "nowhere"
		}
		return fmt.Sprintf("first at token %d", at)
	}
	return []row.Finding{o.finding(row.LogprobNull, p,
		fmt.Sprintf("logprobs are null %s in the cold answer, %s in the warm one", where(p.Logprobs.ColdNull), where(p.Logprobs.WarmNull)),
		"the model computed something that is no number: look for NaN in stored KV if only the warm answer has it")}
}

func differs(p Pair) string {
	unit := "token"
	if p.ByText {
		unit = "character"
	}
	s := fmt.Sprintf("the warm output differs from the cold one from %s %d on (%d and %d %ss)", unit, p.Divergence, p.ColdLength, p.WarmLength, unit)
	if p.ByText {
		s += "; texts were compared, for the server returns no token ids"
	}
	if l := p.Logprobs; l != nil && l.At >= 0 {
		s += fmt.Sprintf("; logprobs differ from token %d on, by at most %.3g before", l.At, l.MaxShift)
	}
	return s
}

func (o Options) finding(code row.Code, p Pair, evidence, advice string) row.Finding {
	return row.Finding{Code: code, Phase: o.Phase, Request: p.ID, Evidence: evidence, Advice: advice}
}
