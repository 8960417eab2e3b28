package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/row"
)

// Reconcile lays the readings of a pass side by side; the first one is usage.
// Each witness must lie in its own interval, and two under the same law and
// expectation must be equal, for an interval leaves room for both to be wrong.
//
// The first witness that said anything is held against the oracle: below, above
// or, in the phase "cold", not cold. Another witness that is wrong in the same
// direction supports it and is no finding of its own; one that is right, or
// wrong in another way, disagrees. Less moved than found is named as such
// instead of a disagreement. A counter that says nothing, restarted or cannot
// be is a finding by itself and is compared with nothing.
func Reconcile(phase string, readings []Reading) ([]Line, []row.Finding) {
	r := &reconciliation{phase: phase}
	for _, reading := range readings {
		line := Line{Reading: reading, Outcome: r.alone(reading)}
		if math.IsNaN(line.Hits) {
			line.Hits = 0 // JSON has no NaN; the finding shows it
		}
		r.lines = append(r.lines, line)
	}
	r.shortLoads()
	r.primary()
	r.others()
	// A counter that is wrong by itself explains what else is odd about it.
	slices.SortStableFunc(r.findings, func(a, b row.Finding) int { return rank(a.Code) - rank(b.Code) })
	return r.lines, r.findings
}

// rank puts what is wrong with one counter alone before what two of them show.
func rank(code row.Code) int {
	switch code {
	case row.CounterReset, row.CountedTwice, row.CounterStuck:
		return 0
	}
	return 1
}

type reconciliation struct {
	phase    string
	lines    []Line
	findings []row.Finding
}

func (r *reconciliation) find(code row.Code, advice, evidence string, args ...any) {
	r.findings = append(r.findings, row.Finding{
		Code: code, Phase: r.phase, Evidence: fmt.Sprintf(evidence, args...), Advice: advice,
	})
}

// shortLoads finds loads that moved less than the lookups found.
func (r *reconciliation) shortLoads() {
	for i := range r.lines {
		load := &r.lines[i]
		if load.Witness != Load || !load.comparable() {
			continue
		}
		for _, lookup := range r.lines {
			if lookup.Witness != Lookup || !lookup.comparable() || !load.shorterThan(lookup.Reading) {
				continue
			}
			load.Outcome = LoadShort
			r.find(row.LoadShorterThanLookup, "the rest was recomputed or made up: look for load failures in the engine's log",
				"%s (%s) moved %v tokens, %s (%s) had found %v; the plan gives %s and %s",
				load.Witness, load.Source, load.Hits, lookup.Witness, lookup.Source, lookup.Hits, load.Expected, lookup.Expected)
			break
		}
	}
}

// primary holds the first witness that said anything against the oracle.
func (r *reconciliation) primary() {
	i := r.first()
	if i < 0 || r.lines[i].direction() == 0 {
		return
	}
	x := r.lines[i].Reading
	code, advice := outside(r.phase, x.Hits, x.Expected)
	var others []string
	for _, l := range r.lines[i+1:] {
		if l.comparable() || l.Outcome == LoadShort {
			others = append(others, fmt.Sprintf("%s %v of %s", l.Witness, l.Hits, l.Expected))
		}
	}
	also := ""
	if len(others) > 0 {
		also = "; the others: " + strings.Join(others, ", ")
	}
	r.find(code, advice, "%s (%s) reports %v hit tokens, the plan gives %s under %s%s", x.Witness, x.Source, x.Hits, x.Expected, x.Law, also)
}

func (r *reconciliation) first() int {
	for i, l := range r.lines {
		if l.comparable() {
			return i
		}
	}
	return -1
}

// others holds each further witness against the oracle and those before it.
func (r *reconciliation) others() {
	first := r.first()
	if first < 0 {
		return
	}
	primary := r.lines[first]
	for i := first + 1; i < len(r.lines); i++ {
		x := &r.lines[i]
		if !x.comparable() {
			continue
		}
		earlier := r.sameLawBefore(i)
		equal := earlier != nil && earlier.Hits == x.Hits
		// A right reading needs no complaint about a wrong one that was named.
		named := earlier != nil && earlier != &r.lines[first] && x.direction() == 0 && earlier.direction() != 0
		switch {
		case x.doubled():
			// It has its own name.
		case x.stuck() && primary.direction() == 0:
			x.Outcome = Disagrees
			r.find(row.CounterStuck, "hits happen and are not counted: this counter, and every rate taken from it, means nothing",
				"%s (%s) did not move, %s (%s) reports %v hit tokens and the plan gives %s",
				x.Witness, x.Source, primary.Witness, primary.Source, primary.Hits, x.Expected)
		case x.Witness == Lookup && x.direction() == 0 && r.explained():
			// It found what the plan gives; what went wrong came after it.
		case equal:
		case earlier != nil && !named:
			if x.direction() == earlier.direction() {
				x.Outcome = Disagrees // both inside an interval, or both outside, and still not equal
			}
			r.find(row.WitnessDisagrees, "one of them is wrong: do not average, do not trust either",
				"%s (%s) reports %v hit tokens, %s (%s) %v; both follow %s, the plan gives %s",
				x.Witness, x.Source, x.Hits, earlier.Witness, earlier.Source, earlier.Hits, x.Law, x.Expected)
		case x.direction() != primary.direction():
			r.find(row.WitnessDisagrees, "one of them is wrong: do not average, do not trust either",
				"%s (%s) reports %v hit tokens where the plan gives %s under %s, %s (%s) %v where it gives %s under %s",
				x.Witness, x.Source, x.Hits, x.Expected, x.Law, primary.Witness, primary.Source, primary.Hits, primary.Expected, primary.Law)
		}
	}
}

// sameLawBefore is the first comparable line before i that must be equal to it.
func (r *reconciliation) sameLawBefore(i int) *Line {
	for j := range r.lines[:i] {
		if r.lines[j].comparable() && r.lines[j].sameLaw(r.lines[i].Reading) {
			return &r.lines[j]
		}
	}
	return nil
}

// explained says that a short load accounts for readings below the plan.
func (r *reconciliation) explained() bool {
	for _, l := range r.lines {
		if l.Outcome == LoadShort {
			return true
		}
	}
	return false
}
