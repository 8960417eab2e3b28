package verdict

import (
	"math"
	"slices"
)

// Quantiles of logprob shifts, in nats.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Shifts sets the logprob shifts of a comparison beside its control's, over the
// positions that lie before any divergence in both.
type Shifts struct {
	Positions int       `json:"positions"`
	Here      Quantiles `json:"here"`
	Control   Quantiles `json:"control"`
	Excess    Quantiles `json:"excess"` // here less control, position by position
}

// CompareShifts pairs the positions of c and control, request by request.
func CompareShifts(c, control Comparison) Shifts {
	var here, there, excess []float64
	for i, p := range c.Pairs {
		if i >= len(control.Pairs) || p.Logprobs == nil || control.Pairs[i].Logprobs == nil {
			continue
		}
		a, b := p.Logprobs.shifts, control.Pairs[i].Logprobs.shifts
		for at := range min(len(a), len(b)) {
			here, there, excess = append(here, a[at]), append(there, b[at]), append(excess, a[at]-b[at])
		}
	}
	return Shifts{Positions: len(here), Here: quantiles(here), Control: quantiles(there), Excess: quantiles(excess)}
}

// quantiles are nearest-rank ones; zero without data.
func quantiles(values []float64) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	at := func(q float64) float64 { return values[max(0, int(math.Ceil(q*float64(len(values))))-1)] }
	return Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: values[len(values)-1]}
}
