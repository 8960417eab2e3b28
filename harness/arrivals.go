package harness

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/load"
)

// closedLoop is the -rate of a closed loop, spelled as in `vllm bench serve`.
const closedLoop = "inf"

// arrivals is what -rate and -burstiness come to.
type arrivals struct {
	rate       float64 // requests per second; 0: a closed loop
	burstiness float64
	seed       uint64
}

// parseArrivals checks -rate and -burstiness.
func (s *Settings) parseArrivals(wrong func(flag string, value any, format string, args ...any)) arrivals {
	a := arrivals{burstiness: s.Burstiness, seed: s.Seed}
	if !(s.Burstiness > 0) {
		wrong("burstiness", s.Burstiness, "want a number above 0: 1 is Poisson, less comes in bursts, inf is constant")
	}
	if s.Rate == closedLoop {
		return a
	}
	rate, err := strconv.ParseFloat(s.Rate, 64)
	if err != nil || math.IsNaN(rate) || math.IsInf(rate, 0) || rate <= 0 {
		wrong("rate", s.Rate, "want inf (a closed loop), or a finite number of requests per second above 0")
		return a
	}
	a.rate = rate
	return a
}

// open says that requests have a schedule.
func (a arrivals) open() bool { return a.rate > 0 }

// schedule is what run.Config takes; nil for a closed loop.
func (a arrivals) schedule() func([]fixtures.Request) load.Schedule {
	if !a.open() {
		return nil
	}
	process := load.Arrivals{Rate: a.rate, Burstiness: a.burstiness, Seed: a.seed}
	return func(requests []fixtures.Request) load.Schedule { return process.Schedule(len(requests)) }
}

// takes is the time from the first request being due to the last.
func (a arrivals) takes(requests []fixtures.Request) time.Duration {
	if !a.open() || len(requests) == 0 {
		return 0
	}
	return a.schedule()(requests)[len(requests)-1]
}

// String is the value of the config line "rate:".
func (a arrivals) String() string {
	switch {
	case !a.open():
		return "closed-loop"
	case a.burstiness == 1:
		return fmt.Sprint(a.rate)
	default:
		return fmt.Sprintf("%v,burstiness=%v", a.rate, a.burstiness)
	}
}
