package verdict

import (
	"math"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// The names of witnesses that Reconcile knows more about than their numbers.
const (
	Usage  = "usage"   // of each request
	Lookup = "backend" // counts what the cache found
	Load   = "bytes"   // counts what was moved after that
)

// A Reading is what one witness says about a pass, beside what it must say.
// Tokens throughout.
type Reading struct {
	Witness  string            `json:"witness"`
	Source   string            `json:"source"`
	Law      string            `json:"law"`
	Expected fixtures.Interval `json:"expected"` // of the oracle, under the witness's own law
	Hits     float64           `json:"hits"`
	Queries  float64           `json:"queries"`

	ExpectedQueries int       `json:"expected_queries"` // 0: queries are not checked
	State           row.State `json:"state"`            // anything but Known: Hits and Queries mean nothing
	Required        bool      `json:"required"`
}

// An Outcome is what became of a reading.
type Outcome string

// The outcomes.
const (
	Agrees     Outcome = "agrees"     // with the oracle and with the readings of the same law before it
	Disagrees  Outcome = "disagrees"  // with one of them
	LoadShort  Outcome = "load-short" // less was moved than was found
	Unknown    Outcome = "unknown"    // it said nothing
	Reset      Outcome = "reset"      // its counter started anew in between
	Impossible Outcome = "impossible" // its numbers cannot be
	NoQueries  Outcome = "no-queries" // 0/0
)

// A Line is one witness in the table of a pass.
type Line struct {
	Reading
	Outcome Outcome `json:"outcome"`
}

// Disagree are the names of the witnesses that disagree, in order.
func Disagree(lines []Line) []string {
	var names []string
	for _, l := range lines {
		if l.Outcome == Disagrees {
			names = append(names, l.Witness)
		}
	}
	return names
}

// alone judges a reading without the others.
func (r *reconciliation) alone(x Reading) Outcome {
	switch x.State {
	case row.Known:
	case row.Restarted:
		r.find(row.CounterReset, "find out why the server restarted; nothing that was stored before can be trusted to be there",
			"%s (%s) started anew during the pass", x.Witness, x.Source)
		return Reset
	case row.Impossible:
		r.find(row.ImpossibleCounter, "the counters are wrong; no rate is taken from them",
			"%s (%s) reports %v hit tokens of %v", x.Witness, x.Source, x.Hits, x.Queries)
		return Impossible
	default:
		if x.Required {
			r.find(row.WitnessMissing, "a missing witness is unknown, not 0: check that the server exports it",
				"%s (%s) says nothing, the plan gives %s hit tokens", x.Witness, x.Source, x.Expected)
		}
		return Unknown
	}
	checked := x.ExpectedQueries > 0
	switch {
	case x.doubled():
		r.find(row.CountedTwice, "it counts each hit in two places, or again at each retry of the scheduler",
			"%s (%s) reports %v hit tokens, twice the %s of the plan", x.Witness, x.Source, x.Hits, x.Expected)
		return Disagrees
	case math.IsNaN(x.Hits) || x.Hits < 0 || checked && x.Hits > x.Queries:
		r.find(row.ImpossibleCounter, "the counters are wrong; no rate is taken from them",
			"%s (%s) reports %v hit tokens of %v", x.Witness, x.Source, x.Hits, x.Queries)
		return Impossible
	case checked && x.Queries == 0:
		r.find(row.NoQueries, "the cache was not asked at all: look at how the engine is connected to it",
			"%s (%s) was asked for no tokens, the prompts have %d", x.Witness, x.Source, x.ExpectedQueries)
		return NoQueries
	case checked && x.Queries > float64(x.ExpectedQueries):
		r.find(row.ForeignTraffic, "somebody else uses the server, or it counts a query more than once",
			"%s (%s) was asked for %v tokens, the prompts have %d", x.Witness, x.Source, x.Queries, x.ExpectedQueries)
	case checked && x.Queries < float64(x.ExpectedQueries):
		r.find(row.WitnessDisagrees, "some requests did not reach the cache, or were not counted",
			"%s (%s) was asked for %v tokens, the prompts have %d", x.Witness, x.Source, x.Queries, x.ExpectedQueries)
	}
	if x.direction() != 0 {
		return Disagrees
	}
	return Agrees
}

// direction is the side on which a reading leaves its interval; 0: it does not.
func (x Reading) direction() int {
	switch {
	case x.Hits < float64(x.Expected.Min):
		return -1
	case x.Hits > float64(x.Expected.Max):
		return 1
	}
	return 0
}

// doubled says that a counter moved by exactly twice what it must. Usage is no
// counter: twice the hits there are a hit that is too long.
func (x Reading) doubled() bool {
	return x.Witness != Usage && x.Expected.Exact() && x.Expected.Min > 0 && x.Hits == 2*float64(x.Expected.Min)
}

// stuck says that a counter did not move where hits were certain.
func (x Reading) stuck() bool { return x.Witness != Usage && x.Hits == 0 && x.Expected.Min > 0 }

func (l Line) comparable() bool { return l.Outcome == Agrees || l.Outcome == Disagrees }

// sameLaw says that two witnesses must give the same number.
func (x Reading) sameLaw(y Reading) bool { return x.Law == y.Law && x.Expected == y.Expected }

// shorterThan says that a load fell short of a lookup, each measured by its
// own law.
func (x Reading) shorterThan(lookup Reading) bool {
	switch {
	case x.sameLaw(lookup):
		return x.Hits < lookup.Hits
	case x.Expected.Exact() && lookup.Expected.Exact():
		return x.Hits-float64(x.Expected.Min) < lookup.Hits-float64(lookup.Expected.Min)
	}
	return x.direction() < 0 && lookup.direction() >= 0
}
