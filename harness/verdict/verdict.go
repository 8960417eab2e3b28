// Package verdict judges what a cycle showed: whether the warm outputs are the
// cold ones, whether the witnesses of a pass agree with the oracle and with
// each other, whether each request ended as it was asked for, and what the
// numbers are worth after that. It computes on what it is given and does
// nothing else.
//
//	comparison := verdict.Compare(cold.Timelines, warm.Timelines)
//	v, findings := verdict.Judge(comparison, verdict.Options{MinTokens: 32, Exact: true})
//	lines, more := verdict.Reconcile("warm", readings)
//	fmt.Print(verdict.Table(lines))
//	grade := verdict.Worst(verdict.GradeOf(v), …)
//
// On a stack that does not compute the same bits every time, a control says how
// far answers move without a fault; without one a difference there is undecided.
package verdict

import "slices"

// A Verdict says whether outputs after a hit are the right ones.
type Verdict string

// The verdicts.
const (
	Identical    Verdict = "identical"    // every token, over enough tokens
	NumericTie   Verdict = "numeric-tie"  // they part where the control parts too, at a tie
	Undecided    Verdict = "undecided"    // they differ, and too little is known about how often they do without a fault
	Insufficient Verdict = "insufficient" // nothing differs, but too little was compared to call it identical
	Corrupt      Verdict = "corrupt"      // else
	Lossy        Verdict = "lossy"        // they differ by design: what was delivered is checked in their place
)

// A Grade says what a number is worth.
type Grade string

// The grades, best first.
const (
	Proven   Grade = "proven"   // all required witnesses exist and agree
	Observed Grade = "observed" // nothing speaks against it, but some evidence cannot exist here
	Invalid  Grade = "invalid"  // it must not be printed
)

// GradeOf maps a verdict to the grade of the numbers it was given about. No
// verdict at all, as of a cycle that broke off, is invalid.
func GradeOf(v Verdict) Grade {
	switch v {
	case Identical, NumericTie:
		return Proven
	case Undecided, Insufficient:
		return Observed
	}
	return Invalid
}

// GradeComparison is GradeOf with the number of ties in view: a row of whose
// requests more than a fifth are tied is observed.
func GradeComparison(v Verdict, c Comparison) Grade {
	if v == NumericTie && float64(c.Total-c.Matches) > tiedLimit*float64(c.Total) {
		return Observed
	}
	return GradeOf(v)
}

// GradeWitnesses grades a pass by its witnesses: invalid if any of them
// contradicts or a required one is missing, observed if one that the row would
// like to have cannot exist here; those are named.
func GradeWitnesses(lines []Line) (g Grade, missing []string) {
	g = Proven
	for _, l := range lines {
		switch {
		case l.Outcome == Unknown && !l.Required:
			missing = append(missing, l.Witness)
			g = Worst(g, Observed)
		case l.Outcome != Agrees:
			g = Invalid
		}
	}
	return g, missing
}

// Worst is the lowest of the grades; of none it is proven. An unknown grade is
// invalid.
func Worst(grades ...Grade) Grade {
	order := []Grade{Proven, Observed, Invalid}
	worst := 0
	for _, g := range grades {
		i := slices.Index(order, g)
		if i < 0 {
			return Invalid
		}
		worst = max(worst, i)
	}
	return order[worst]
}
