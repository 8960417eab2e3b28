package verdict

import (
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// Options say how to judge a comparison.
type Options struct {
	MinTokens int    // compared tokens that each request needs to be called identical; 32 proves, below 1 counts as 1
	Exact     bool   // equal inputs give equal bits on this stack: any difference is a fault
	Logprobs  bool   // they were asked for: a request without them proves nothing
	Phase     string // of the findings; empty: warm

	// Controls compare the cold pass with repetitions that have no fault: one
	// that recomputes, one from the engine's own cache where it has one. Pair by
	// pair over the same prompts, unless Unpaired. None: nobody knows how far
	// answers move by themselves. They are not looked at where the stack is
	// exact.
	Controls []Comparison
	Hits     bool // one of them answered from a cache: without, nobody knows what a hit moves by itself
	Unpaired bool // the controls are about other prompts of the same shape
}

// Judge gives the verdict on a comparison of cold and warm outputs, and a
// finding for each request that is corrupt. Requests that failed prove nothing
// and have their own findings (CheckRequest).
//
// Where the stack is not exact, the controls say how far answers move without
// a fault. A request that parts from its cold answer is a tie if the best two
// tokens were no further apart there than noise closes, and if nothing before
// moved more than noise does; else it is corrupt. One whose tokens agree is
// corrupt if a logprob moved beyond the noise. If most answers of the controls
// did not move at all, how far they move is hardly known: a request that moved
// by a few roundings is then undecided. Then all requests together: no more of
// them may part than in the controls, no more first tokens may have moved and,
// where the noise is hardly known, no more answers, by exact tests; what one of
// the controls does as often is no fault. Logprobs are counted only where a
// control has hits: the sums of a hit may be made in another order.
func Judge(c Comparison, o Options) (Verdict, []row.Finding) {
	if o.Phase == "" {
		o.Phase = "warm"
	}
	j := judgement{Options: o, seen: make(map[Verdict]bool)}
	if !o.Exact {
		j.noise = NoiseOf(o.Controls...)
		j.known = j.noise.Pairs > 0
	}
	for i, p := range c.Pairs {
		j.judge(i, p)
	}
	if j.known {
		j.together(c)
	}
	for _, v := range []Verdict{Corrupt, Undecided, Insufficient, NumericTie, Identical} {
		if j.seen[v] {
			return v, j.findings
		}
	}
	return Undecided, j.findings // no requests
}

// A judgement is the verdict under way.
type judgement struct {
	Options
	noise    Noise
	known    bool // there are controls
	seen     map[Verdict]bool
	findings []row.Finding
	tied     int // requests that part at a tie, where no control does
}

func (j *judgement) corrupt(f ...row.Finding) {
	j.seen[Corrupt] = true
	j.findings = append(j.findings, f...)
}

func (j *judgement) judge(i int, p Pair) {
	switch found := j.nulls(p); {
	case p.Failed != "":
		j.seen[Insufficient] = true
		return
	case len(found) > 0:
		j.corrupt(found...)
		return
	case p.Divergence >= 0:
		j.divergent(i, p)
		return
	}
	if l := p.Logprobs; l != nil && l.Differing > 0 {
		switch {
		case !j.Exact && j.noise.Logprobs == 0, !j.Exact && l.MaxShift > j.noise.shift() && j.slight(l.MaxShift):
			j.seen[Undecided] = true
			return
		case j.Exact || l.MaxShift > j.noise.shift():
			j.corrupt(j.finding(row.LogprobShift, p, fmt.Sprintf(
				"all %d tokens agree, but logprobs differ at %d of %d positions, first at token %d, by at most %.3g%s",
				p.Compared, l.Differing, l.Compared, l.At, l.MaxShift, j.beside()),
				"a low bit of stored KV, or the order of its tokens, changed: tokens alone do not show it"))
			return
		}
	}
	if p.Compared < max(j.MinTokens, 1) || j.Logprobs && (p.Logprobs == nil || p.Logprobs.Compared < p.Compared) {
		j.seen[Insufficient] = true
		return
	}
	j.seen[Identical] = true
}

// beside says what the control shows, for evidence.
func (j *judgement) beside() string {
	if !j.known {
		return ""
	}
	return fmt.Sprintf("; without a fault they move by at most %.3g (%d pairs)", j.noise.MaxShift, j.noise.Pairs)
}

// divergent judges a pair whose outputs differ.
func (j *judgement) divergent(i int, p Pair) {
	corrupt := func(why string) {
		j.corrupt(j.finding(row.OutputDiffers, p, differs(p)+why,
			"ask both ways with the lines in the repro folder; wrong KV was served, or the wrong request's"))
	}
	if !j.Exact && j.noise.Logprobs == 0 { // there is nothing to hold them to
		if p.Logprobs = nil; j.noise.gaps == 0 {
			p.TopGap = nil
		}
	}
	switch {
	case j.Exact:
		corrupt("")
	case !j.known:
		j.seen[Undecided] = true
	case j.beyond(p) && j.slight(p.Logprobs.largest()) && (p.TopGap == nil || j.slight(*p.TopGap) || *p.TopGap <= j.noise.gap()):
		j.seen[Undecided] = true
	case p.Logprobs != nil && p.Logprobs.largest() > j.noise.shift():
		corrupt(fmt.Sprintf("; logprobs of the same context moved by %.3g%s", p.Logprobs.largest(), j.beside()))
	case p.TopGap != nil && *p.TopGap > j.noise.gap():
		corrupt(fmt.Sprintf("; the best token was %.3g ahead of the second there, without a fault answers part at most at %.3g (%d of %d pairs do)",
			*p.TopGap, j.noise.gap(), j.noise.Diverged, j.noise.Pairs))
	case p.TopGap == nil && j.noise.Diverged == 0 && !j.Unpaired:
		corrupt(fmt.Sprintf("; none of the %d pairs without a fault does", j.noise.Pairs))
	case p.TopGap == nil && j.Unpaired && j.noise.Diverged > 0:
		j.seen[NumericTie] = true // of those the number tells
	case p.TopGap == nil:
		j.seen[Undecided] = true
	default:
		j.seen[NumericTie] = true
		if !j.partsThere(i, p.Divergence) {
			j.tied++
		}
	}
}

// beyond says that a parting pair shows more than noise explains.
func (j *judgement) beyond(p Pair) bool {
	return p.Logprobs.largest() > j.noise.shift() || p.TopGap != nil && *p.TopGap > j.noise.gap()
}

// slight says that a shift or a gap is within what a few roundings explain, on
// an engine of which hardly more is known.
func (j *judgement) slight(nats float64) bool { return !j.noise.settled() && nats <= roundings }

// partsThere says that a control's answer to that prompt parts at that token.
func (j *judgement) partsThere(i, token int) bool {
	return !j.Unpaired && slices.ContainsFunc(j.Controls, func(c Comparison) bool {
		return i < len(c.Pairs) && c.Pairs[i].Failed == "" && c.Pairs[i].Divergence == token
	})
}

// together looks at all requests at once: what each of them could be by chance,
// all of them cannot. What one of the controls does as often is no fault.
func (j *judgement) together(c Comparison) {
	pass := Pair{} // the findings are about the pass
	own := NoiseOf(c)
	var part, first, move likeliest
	pairs := 0
	for _, control := range j.Controls {
		noise := NoiseOf(control)
		if noise.Pairs == 0 {
			continue
		}
		here, there, both := parted(c, control)
		p, level := signTest(here, there), alpha
		if j.Unpaired {
			here, there, both = own.Diverged, noise.Diverged, own.Pairs
			p, level = fisherTest(here, both, there, noise.Pairs), cycleAlpha
		}
		pairs = max(pairs, both)
		part.add(p, level, here, fmt.Sprintf(
			"%d requests part from their cold answers that do not without a fault, %d the other way round (of %d; p = %.2g)", here, there, both, p))
		if noise.Logprobs == 0 || !j.Hits {
			continue
		}
		p = fisherTest(own.FirstMoved, own.Logprobs, noise.FirstMoved, noise.Logprobs)
		first.add(p, alpha, own.FirstMoved, fmt.Sprintf("the logprobs of the first token moved in %d of %d requests, without a fault in %d of %d (p = %.2g)",
			own.FirstMoved, own.Logprobs, noise.FirstMoved, noise.Logprobs, p))
		if !j.noise.settled() {
			p = fisherTest(own.shifted, own.Logprobs, noise.shifted, noise.Logprobs)
			move.add(p, alpha, own.shifted, fmt.Sprintf("logprobs moved in %d of %d requests, without a fault in %d of %d (p = %.2g)",
				own.shifted, own.Logprobs, noise.shifted, noise.Logprobs, p))
		}
	}
	if part.fault {
		j.corrupt(j.finding(row.OutputDiffers, pass, part.evidence, "each one could be a tie; so many are not: the cache changes answers"))
	}
	if first.fault {
		j.corrupt(j.finding(row.LogprobShift, pass, first.evidence, "the first token comes of the prompt's KV alone: look at what was stored"))
	}
	if move.fault && !first.fault {
		j.corrupt(j.finding(row.LogprobShift, pass, move.evidence, "each one could be rounding; so many are not: look at what was stored"))
	}
	if j.seen[NumericTie] && float64(own.Diverged) > tiedFailure*float64(own.Pairs) && own.Pairs >= fewest {
		j.findings = append(j.findings, j.finding(row.TiedTooOften, pass, fmt.Sprintf("%d of %d requests part from their cold answers", own.Diverged, own.Pairs),
			"an engine that answers otherwise so often shows nothing about its cache: pin its threads, switch batch invariance on, or take one request at a time"))
	}
	if j.tied > 0 && pairs < fewest {
		j.seen[Undecided] = true
	}
}

// likeliest keeps, of the same test against each control, the one that finds
// the least.
type likeliest struct {
	p        float64
	tested   bool
	fault    bool
	evidence string
}

func (l *likeliest) add(p, level float64, events int, evidence string) {
	if l.tested && p <= l.p {
		return
	}
	*l = likeliest{p: p, tested: true, fault: events > 0 && p < level, evidence: evidence}
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
