package verdict

import (
	"fmt"
	"math"

	"github.com/kvproof/kvproof/harness/row"
)

// A Comparison sets the answers of two passes over one plan against each
// other. Everything in it can be written as JSON.
type Comparison struct {
	Total   int     `json:"total"`   // requests
	Matches int     `json:"matches"` // requests whose whole output is equal
	Low     float64 `json:"low"`     // Wilson interval of the match rate, 95 %
	High    float64 `json:"high"`
	Pairs   []Pair  `json:"pairs"` // by position in the cold pass
}

// Rate is the share of the requests that match, from 0 to 1; false without
// requests.
func (c Comparison) Rate() (float64, bool) {
	if c.Total == 0 {
		return 0, false
	}
	return float64(c.Matches) / float64(c.Total), true
}

// A Pair is one request of the plan in both passes. Lengths and positions are
// in tokens; in characters if ByText.
type Pair struct {
	Index      int       `json:"index"`
	ID         string    `json:"id"`               // in the warm pass
	Failed     string    `json:"failed,omitempty"` // why there is nothing to compare; no match
	Match      bool      `json:"match"`
	ByText     bool      `json:"by_text,omitempty"` // a side has no token ids
	ColdLength int       `json:"cold_length"`
	WarmLength int       `json:"warm_length"`
	Compared   int       `json:"compared_tokens"`   // tokens that stand on both sides
	Divergence int       `json:"first_divergence"`  // first position that differs; -1: none
	TopGap     *float64  `json:"top_gap,omitempty"` // cold: logprob of the best minus the second at the divergence
	Logprobs   *Logprobs `json:"logprobs,omitempty"`
}

// Compare pairs the timelines and compares token ids, and logprobs where both
// sides have them. Pairs are found by request id where the ids of both passes
// are the same set, else by position. A failed, missing or shorter answer is
// no match. Where a side has no token ids, the texts are compared and the pair
// says so.
func Compare(cold, warm []row.Timeline) Comparison { return CompareWithin(cold, warm, 0) }

// CompareWithin is Compare where logprobs that are no further apart than
// rounding, in nats, are equal: of an engine that adds up in another order after
// a hit. Tokens are compared as always.
func CompareWithin(cold, warm []row.Timeline, rounding float64) Comparison {
	var c Comparison
	partner := pairing(cold, warm)
	for i := range max(len(cold), len(warm)) {
		p := Pair{Index: i, Divergence: -1}
		switch {
		case i >= len(warm):
			p.ID, p.Failed = cold[i].ID, "not in the warm pass"
		case i >= len(cold):
			p.ID, p.Failed = warm[i].ID, "not in the cold pass"
		default:
			p.compare(cold[i], warm[partner[i]], rounding)
		}
		c.Pairs = append(c.Pairs, p)
		c.Total++
		if p.Match {
			c.Matches++
		}
	}
	c.Low, c.High = Wilson(c.Matches, c.Total)
	return c
}

// pairing gives for each cold request the position of its warm one.
func pairing(cold, warm []row.Timeline) []int {
	byPosition := make([]int, len(cold))
	where := make(map[string]int, len(warm))
	for i, t := range warm {
		where[t.ID] = i
	}
	byID := make([]int, len(cold))
	seen := make(map[string]bool, len(cold))
	same := len(cold) == len(warm) && len(where) == len(warm)
	for i, t := range cold {
		byPosition[i] = i
		at, ok := where[t.ID]
		same = same && ok && t.ID != "" && !seen[t.ID]
		seen[t.ID], byID[i] = true, at
	}
	if same {
		return byID
	}
	return byPosition
}

func (p *Pair) compare(cold, warm row.Timeline, rounding float64) {
	p.ID = warm.ID
	switch {
	case cold.Status != row.OK:
		p.Failed = fmt.Sprintf("cold request ended as %s", cold.Status)
		return
	case warm.Status != row.OK:
		p.Failed = fmt.Sprintf("warm request ended as %s", warm.Status)
		return
	}
	if lacksIDs(cold) || lacksIDs(warm) {
		p.ByText = true
		a, b := []rune(cold.Text), []rune(warm.Text)
		p.ColdLength, p.WarmLength = len(a), len(b)
		p.Divergence = firstDifference(a, b)
		p.Compared = comparedByUsage(cold, warm)
	} else {
		p.ColdLength, p.WarmLength = len(cold.Tokens), len(warm.Tokens)
		p.Divergence = firstDifference(cold.Tokens, warm.Tokens)
		p.Compared = min(p.ColdLength, p.WarmLength)
		p.Logprobs = compareLogprobs(cold, warm, p.Divergence, rounding)
		p.TopGap = topGap(cold.Logprobs, p.Divergence)
	}
	p.Match = p.Divergence < 0
}

// lacksIDs says that a server returned text and no token ids.
func lacksIDs(t row.Timeline) bool {
	return len(t.Tokens) == 0 && (t.Text != "" || t.Usage != nil && t.Usage.CompletionTokens > 0)
}

// comparedByUsage is how many tokens a comparison of texts covered; 0 if the
// servers do not say.
func comparedByUsage(cold, warm row.Timeline) int {
	if cold.Usage == nil || warm.Usage == nil {
		return 0
	}
	return min(cold.Usage.CompletionTokens, warm.Usage.CompletionTokens)
}

// firstDifference is the first position at which two sequences differ, their
// end included; -1: they are equal.
func firstDifference[T comparable](a, b []T) int {
	shorter := min(len(a), len(b))
	for i := range shorter {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return shorter
	}
	return -1
}

// Wilson is the 95 % interval of a rate of which matches of total were seen.
// It stays sensible near 0 and 1, where a normal interval has no width, and is
// the whole range without data.
func Wilson(matches, total int) (low, high float64) {
	if total == 0 {
		return 0, 1
	}
	const z = 1.959963984540054 // standard normal quantile of 0.975
	n, p := float64(total), float64(matches)/float64(total)
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}
