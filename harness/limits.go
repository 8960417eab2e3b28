package harness

import (
	"math"

	"github.com/kvproof/kvproof/fixtures"
)

// checkLimits checks the flags of the sampling and of the services, and reads
// the sizes among them.
func (s *Settings) checkLimits(wrong func(flag string, value any, format string, args ...any)) (maxL1, maxL2 int64) {
	if !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0) {
		wrong("temperature", s.Temperature, "want 0 or more")
	}
	if !(s.TopP > 0 && s.TopP <= 1) {
		wrong("topp", s.TopP, "want more than 0 and at most 1")
	}
	if s.MaxSeqs < 0 {
		wrong("maxseqs", s.MaxSeqs, "want at least 1, or 0 for as many as -concurrency")
	}
	if s.Timeout <= 0 {
		wrong("requesttimeout", s.Timeout, "want a time above 0, e.g. 1m")
	}
	size := func(flag, text string) (n int64) {
		if text == "" {
			return 0
		}
		n, err := fixtures.ParseSize(text)
		switch {
		case err != nil:
			wrong(flag, text, "%w", err)
		case n == 0:
			wrong(flag, text, "a tier needs some room")
		case !s.Evict:
			wrong(flag, text, "only -evict sizes tiers; without it a cache gets what keeps the working set")
		}
		return n
	}
	return size("maxl1", s.MaxL1), size("maxl2", s.MaxL2)
}
