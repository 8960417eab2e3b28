package bench_test

import (
	"testing"

	"github.com/kvproof/kvproof/harness"
)

// BenchmarkClient asks: how wrong is the client itself, and what does it cost?
func BenchmarkClient(b *testing.B) {
	harness.EachLoad(b, []int{1, 4, 16, 64, 256, 512, 1024}, func(b *testing.B, cost *harness.ClientCost) {
		for b.Loop() {
			cost.Measure(b)
		}
		cost.Report(b)
	})
}
