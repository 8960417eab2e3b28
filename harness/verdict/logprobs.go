package verdict

import (
	"math"

	"github.com/kvproof/kvproof/harness/row"
)

// Logprobs compares the logprobs of a pair at the positions before any
// divergence, where both sides saw the same context: chosen token and top
// tokens, both best first.
type Logprobs struct {
	Compared  int     `json:"compared"`  // positions with logprobs on both sides
	Differing int     `json:"differing"` // positions where any bit differs, or more than rounding does
	MaxShift  float64 `json:"max_shift"` // largest |cold − warm|, in nats
	First     float64 `json:"first"`     // shift of the first token, which no other answer's batch has touched yet on most engines
	Parting   float64 `json:"parting"`   // shift of the top tokens where the answers part: both saw the same context there, too
	At        int     `json:"at"`        // first differing position; -1: none
	ColdNull  int     `json:"cold_null"` // first position with a null logprob, anywhere; -1: none
	WarmNull  int     `json:"warm_null"`

	shifts   []float64 // by position before any divergence
	rounding float64   // shifts up to it are none
}

// largest is the largest shift where both sides saw the same context; 0 where it
// is no larger than rounding.
func (l *Logprobs) largest() float64 {
	if l == nil {
		return 0
	}
	return l.beyond(max(l.MaxShift, l.Parting))
}

// first is the shift of the first token, whether the answers part there or not;
// 0 where it is no larger than rounding.
func (l *Logprobs) first() float64 {
	if len(l.shifts) == 0 {
		return l.beyond(l.Parting)
	}
	return l.beyond(l.First)
}

func (l *Logprobs) beyond(shift float64) float64 {
	if shift <= l.rounding {
		return 0
	}
	return shift
}

// compareLogprobs returns nil where a side has none.
func compareLogprobs(cold, warm row.Timeline, divergence int, rounding float64) *Logprobs {
	if len(cold.Logprobs) == 0 || len(warm.Logprobs) == 0 {
		return nil
	}
	l := &Logprobs{rounding: rounding, At: -1, ColdNull: firstNull(cold.Logprobs), WarmNull: firstNull(warm.Logprobs)}
	l.Compared = min(len(cold.Logprobs), len(warm.Logprobs))
	if divergence >= 0 {
		l.Compared = min(l.Compared, divergence)
	}
	for i := range l.Compared {
		shift, differs := shiftAt(cold.Logprobs[i], warm.Logprobs[i])
		differs = differs || shift > rounding
		l.MaxShift = max(l.MaxShift, shift)
		l.shifts = append(l.shifts, shift)
		if !differs {
			continue
		}
		l.Differing++
		if l.At < 0 {
			l.At = i
		}
	}
	if len(l.shifts) > 0 {
		l.First = l.shifts[0]
	}
	if divergence >= 0 && divergence < min(len(cold.Logprobs), len(warm.Logprobs)) {
		l.Parting, _ = shiftAt(row.TokenLogprob{Top: cold.Logprobs[divergence].Top}, row.TokenLogprob{Top: warm.Logprobs[divergence].Top})
	}
	return l
}

// shiftAt is the largest difference at one position, in nats. Nulls have no
// size, but one that stands on one side only is a difference.
func shiftAt(a, b row.TokenLogprob) (shift float64, differs bool) {
	differs = len(a.Top) != len(b.Top)
	x, y := append([]float64{a.Logprob}, a.Top...), append([]float64{b.Logprob}, b.Top...)
	for i := range min(len(x), len(y)) {
		switch {
		case null(x[i]) || null(y[i]):
			differs = differs || null(x[i]) != null(y[i])
		default:
			shift = max(shift, math.Abs(x[i]-y[i]))
		}
	}
	return shift, differs
}

func firstNull(logprobs []row.TokenLogprob) int {
	for i, l := range logprobs {
		if null(l.Logprob) {
			return i
		}
		for _, top := range l.Top {
			if null(top) {
				return i
			}
		}
	}
	return -1
}

// null says that the model's output was not finite: JSON has no number for it.
func null(logprob float64) bool { return math.IsNaN(logprob) || math.IsInf(logprob, 0) }

// topGap is how far the best token was ahead of the second at a position.
func topGap(logprobs []row.TokenLogprob, at int) *float64 {
	if at < 0 || at >= len(logprobs) || len(logprobs[at].Top) < 2 {
		return nil
	}
	best, second := logprobs[at].Top[0], logprobs[at].Top[1]
	if null(best) || null(second) {
		return nil
	}
	gap := best - second
	return &gap
}
