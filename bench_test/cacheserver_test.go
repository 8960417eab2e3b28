package bench_test

import (
	"testing"

	"github.com/kvproof/kvproof/harness"
)

// BenchmarkCacheServer asks the cache server alone: how long do lookups, stores
// and retrieves take, and is what comes back what was stored?
func BenchmarkCacheServer(b *testing.B) {
	harness.EachCacheServer(b, func(b *testing.B, cell *harness.CacheCell) {
		for b.Loop() {
			cell.Run(b) // miss → store → visible → hit → retrieve → compare
		}
		cell.Report(b)
	})
}
