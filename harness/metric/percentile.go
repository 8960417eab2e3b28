package metric

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// P99From is how many samples a 99th percentile needs: below it, it would be
// the maximum under another name.
const P99From = 100

// Percentile is the nearest-rank percentile: the value at index ceil(p·n)−1 of
// the sorted values, for 0 < p ≤ 1; always one of the values, never in between.
// It leaves its argument alone. It panics without values or for another p:
// there is no number to return, and 0 would be a lie.
func Percentile[T cmp.Ordered](values []T, p float64) T {
	if len(values) == 0 || !(p > 0 && p <= 1) {
		panic(fmt.Sprintf("metric: percentile %v of %d values", p, len(values)))
	}
	// 0.07·100 is a little above 7 in floating point; the rank is still 7.
	const rounding = 1e-9
	rank := int(math.Ceil(p*float64(len(values)) - rounding))
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(rank, 1)-1]
}

// Mean is the arithmetic mean. It panics without values, as Percentile does.
func Mean[T ~int64 | ~float64](values []T) float64 {
	if len(values) == 0 {
		panic("metric: mean of no values")
	}
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}
