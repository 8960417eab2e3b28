// Package breakeven says from what length on a cache hit is faster than
// computing the prompt again. It fits both to what was measured and looks for
// where they cross:
//
//	var c breakeven.Curve
//	c.Add(1024, 340*time.Millisecond, 4*time.Millisecond) // tokens, recompute, load
//	…
//	result, err := c.Fit()
//	fmt.Println(result) // a hit pays from 23 tokens
//
// Computing costs a + b·n + c·n² for a prompt of n tokens (attention is the
// square), loading a + b·n. Of equal lengths the least time counts: what is
// added to it is somebody else's. Fits minimise the relative error, so that short
// lengths, where the two cross, count as much as long ones.
package breakeven

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Point is one hit length with the least times that were measured at it.
type Point struct {
	Tokens    int
	Recompute time.Duration // to the first token, nothing cached
	Load      time.Duration // to the first token, all but the last of the prompt cached
	Cold      time.Duration // as Recompute, by the row itself; 0: not measured
}

// A Curve collects points.
type Curve struct{ points map[int]Point }

// Add takes in a measurement at a length; cold is 0 where it is not known.
func (c *Curve) Add(tokens int, recompute, load, cold time.Duration) {
	if c.points == nil {
		c.points = make(map[int]Point)
	}
	p, known := c.points[tokens]
	if !known {
		p = Point{tokens, recompute, load, cold}
	}
	p.Recompute, p.Load, p.Cold = min(p.Recompute, recompute), min(p.Load, load), min(p.Cold, cold)
	c.points[tokens] = p
}

// Points are the points by length.
func (c *Curve) Points() []Point {
	points := make([]Point, 0, len(c.points))
	for _, p := range c.points {
		points = append(points, p)
	}
	slices.SortFunc(points, func(a, b Point) int { return a.Tokens - b.Tokens })
	return points
}

// A Polynomial is seconds over tokens: Fixed + PerToken·n + PerSquare·n².
type Polynomial struct {
	Fixed     float64 `json:"fixed_s"`
	PerToken  float64 `json:"per_token_s"`
	PerSquare float64 `json:"per_square_s"`
}

// At is the time for n tokens.
func (p Polynomial) At(n float64) float64 { return p.Fixed + n*(p.PerToken+n*p.PerSquare) }

// A Result is a fitted curve.
type Result struct {
	Points    []Point    `json:"points"`
	Recompute Polynomial `json:"recompute"`
	Load      Polynomial `json:"load"`
	Tokens    int        `json:"break_even_tokens"` // from here on a hit pays, up to Limit; 0: it does not
	Limit     int        `json:"limit_tokens"`      // so far the fits are looked at: four times the longest that was measured
}

// extrapolation is how much farther than the longest length that was measured
// the fits are believed.
const extrapolation = 4

// Fit fits both curves and finds where they cross for good.
func (c *Curve) Fit() (Result, error) {
	r := Result{Points: c.Points()}
	if len(r.Points) < 2 {
		return r, fmt.Errorf("fitting a break-even: %d lengths were measured, want at least 2", len(r.Points))
	}
	recompute := make([]sample, len(r.Points))
	load := make([]sample, len(r.Points))
	for i, p := range r.Points {
		if p.Tokens < 1 || p.Recompute <= 0 || p.Load <= 0 {
			return r, fmt.Errorf("fitting a break-even: %d tokens took %v to compute and %v to load", p.Tokens, p.Recompute, p.Load)
		}
		recompute[i], load[i] = sample{float64(p.Tokens), p.Recompute.Seconds()}, sample{float64(p.Tokens), p.Load.Seconds()}
	}
	var err error
	if r.Recompute, err = fit(recompute, 2); err != nil {
		return r, err
	}
	if r.Load, err = fit(load, 1); err != nil {
		return r, err
	}
	r.Limit = extrapolation * r.Points[len(r.Points)-1].Tokens
	r.Tokens = Crossing(r.Recompute, r.Load, r.Limit)
	return r, nil
}

// Crossing is the least number of tokens from which on, up to limit, loading is
// faster than computing; 0: at limit it is not.
func Crossing(recompute, load Polynomial, limit int) int {
	for n := limit; n >= 1; n-- {
		if load.At(float64(n)) >= recompute.At(float64(n)) {
			if n == limit {
				return 0
			}
			return n + 1
		}
	}
	return 1
}

// Predicted is the break-even if loading cost nothing but moving bytes at a
// rate: what the transfer alone allows.
func (r Result) Predicted(tokenBytes, bytesPerSecond float64) int {
	return Crossing(r.Recompute, Transfer(tokenBytes, bytesPerSecond), r.Limit)
}

// Transfer is the time for moving the KV of n tokens, and nothing else.
func Transfer(tokenBytes, bytesPerSecond float64) Polynomial {
	return Polynomial{PerToken: tokenBytes / bytesPerSecond}
}

// ColdTax is how much longer the row takes for a prompt that it does not have
// than computing it takes, as a share: the mean over the lengths. False: it was
// not measured.
func (r Result) ColdTax() (share float64, ok bool) {
	for _, p := range r.Points {
		if p.Cold <= 0 {
			return 0, false
		}
		share += (p.Cold.Seconds()/p.Recompute.Seconds() - 1) / float64(len(r.Points))
	}
	return share, len(r.Points) > 0
}

func (r Result) String() string {
	if r.Tokens == 0 {
		return fmt.Sprintf("a hit does not pay up to %d tokens", r.Limit)
	}
	s := fmt.Sprintf("a hit pays from %d tokens", r.Tokens)
	if len(r.Points) > 0 && r.Tokens < r.Points[0].Tokens {
		s += fmt.Sprintf(" by the fits (the shortest that was measured, %d, does)", r.Points[0].Tokens)
	}
	return s
}

// A sample is one measurement: tokens and seconds.
type sample struct{ n, seconds float64 }

// fit finds the polynomial of a degree, up to 2, with the least relative squared
// error and no negative coefficient: nothing takes less than no time, and time
// does not fall with length. Of all choices of powers, as few as there are
// lengths for, it is the best whose coefficients are like that.
func fit(samples []sample, degree int) (best Polynomial, err error) {
	least := math.Inf(1)
	for choice := 1; choice < 1<<(degree+1); choice++ {
		var powers []int
		for power := range degree + 1 {
			if choice&(1<<power) != 0 {
				powers = append(powers, power)
			}
		}
		if len(powers) > len(samples) {
			continue
		}
		x, solved := leastSquares(samples, powers)
		if !solved || slices.Min(x) < 0 {
			continue
		}
		var all [3]float64
		for i, power := range powers {
			all[power] = x[i]
		}
		p, wrong := Polynomial{all[0], all[1], all[2]}, 0.0
		for _, s := range samples {
			off := p.At(s.n)/s.seconds - 1
			wrong += off * off
		}
		if wrong < least {
			best, least = p, wrong
		}
	}
	if math.IsInf(least, 1) {
		return best, errors.New("fitting a break-even: no curve fits")
	}
	return best, nil
}

// leastSquares solves the normal equations of a fit by powers of the length, in
// which each sample weighs by the inverse of its square. Not solved: the powers
// cannot be told apart.
func leastSquares(samples []sample, powers []int) (x []float64, solved bool) {
	size := len(powers)
	m := make([][]float64, size) // with the right-hand side as last column
	for i := range m {
		m[i] = make([]float64, size+1)
	}
	scale := samples[len(samples)-1].n // keeps the powers comparable
	for _, s := range samples {
		weight := 1 / (s.seconds * s.seconds)
		terms := make([]float64, size)
		for i, power := range powers {
			terms[i] = math.Pow(s.n/scale, float64(power))
		}
		for i := range size {
			for j := range size {
				m[i][j] += weight * terms[i] * terms[j]
			}
			m[i][size] += weight * terms[i] * s.seconds
		}
	}
	for i := range size { // Gauss with the largest pivot
		pivot := i
		for j := i + 1; j < size; j++ {
			if math.Abs(m[j][i]) > math.Abs(m[pivot][i]) {
				pivot = j
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		if m[i][i] == 0 {
			return nil, false
		}
		for j := range size {
			if j == i {
				continue
			}
			factor := m[j][i] / m[i][i]
			for k := i; k <= size; k++ {
				m[j][k] -= factor * m[i][k]
			}
		}
	}
	x = make([]float64, size)
	for i, power := range powers {
		x[i] = m[i][size] / m[i][i] / math.Pow(scale, float64(power))
	}
	return x, true
}
