package harness

import (
	"errors"
	"testing"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/gpukv"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

// kvOnGPU says where the benchmark of the cache server keeps its KV.
var kvOnGPU bool

// PlaceKVOnGPU has BenchmarkCacheServer keep its KV in device memory, as the
// build tag gpu asks for. It is called before TestMain parses.
func PlaceKVOnGPU() { kvOnGPU = true }

// A cachePlace is where the KV of the clients lies, and the transfers that there
// are from there.
type cachePlace struct {
	driver    *cuda.Driver // nil: memory of this machine
	transfers []lmcmp.Transfer
}

// cachePlace finds the GPU where KV is to lie on one. Without one the benchmark
// is skipped, or fails under -require.
func (s *session) cachePlace(tb testing.TB) cachePlace {
	tb.Helper()
	if !kvOnGPU {
		return cachePlace{transfers: []lmcmp.Transfer{lmcmp.EngineDriven, lmcmp.LMCacheDriven}}
	}
	driver, err := cuda.Load()
	if errors.Is(err, cuda.ErrNoDriver) {
		Missing(tb, "This keeps KV in the memory of a GPU, and there is none to be used here (%v): run it on a host with NVIDIA's driver, in a container with the capability compute.", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if stack := s.cacheStack(); stack != "process" {
		Missing(tb, "-stack=%s: the cache server must be a process of this host, other than the one whose device memory it opens: -stack=engine=mini,lmcache=process.", s.settings.Stack)
	}
	return cachePlace{driver: driver, transfers: []lmcmp.Transfer{lmcmp.LMCacheDriven}}
}

// put lets a run's KV lie there.
func (p cachePlace) put(c *cachebench.Config) {
	if p.driver == nil {
		return
	}
	shape := c.Shape
	c.GPU = true
	c.NewMemory = func(_, worker int) (lmcmp.Memory, error) { return gpukv.New(p.driver, worker, shape) }
}
