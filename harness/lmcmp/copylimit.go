package lmcmp

import (
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
)

// CopyLimit is how many bytes a second this machine copies out of shared
// memory into its own, that many at a time: in one contiguous piece for each
// core that a transfer uses, the median of some tries. It is what the copying
// part of an engine_driven transfer can reach at best.
func CopyLimit(bytes int) (float64, error) {
	const tries = 21
	pool, err := shm.Create(bytes)
	if err != nil {
		return 0, err
	}
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	if err := pool.Populate(); err != nil {
		return 0, err
	}
	from, to := pool.Bytes(), make([]byte, bytes)
	poison(from)
	poison(to) // no page is touched for the first time while the clock runs
	n := min(copiers(), max(1, bytes/parallelFrom))
	pieces := make([]span, n)
	for i := range pieces {
		begin, end := i*bytes/n, (i+1)*bytes/n
		pieces[i] = span{to[begin:end], from[begin:end]}
	}
	took := make([]time.Duration, tries)
	for i := range took {
		start := time.Now()
		copySpans(pieces)
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return float64(bytes) / took[tries/2].Seconds(), nil
}
