package bench_test

import (
	"testing"

	"github.com/kvproof/kvproof/harness"
)

// BenchmarkServe asks: is a hit faster than a recompute, and is the answer
// still the right one?
func BenchmarkServe(b *testing.B) {
	harness.Each(b, harness.Workloads(), func(b *testing.B, cell *harness.Cell) {
		for b.Loop() {
			cell.Cycle(b) // cold → settle → warm → witnesses → findings
		}
		cell.Report(b)
	})
}
