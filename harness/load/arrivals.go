package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals are a stationary process of requests: the first is due at once, and
// the intervals between them are independent samples of a gamma distribution
// with mean 1/Rate and shape Burstiness. Their coefficient of variation is
// 1/√Burstiness: 1 is a Poisson process, less comes in bursts, more is more
// regular, and infinity is constant.
//
// Rate and burstiness mean what they mean in `vllm bench serve` (0.32.0), with
// one difference: the schedule is a sample as it is drawn. Upstream rescales it
// so that its mean is exactly the rate, which is no Poisson process any more;
// Schedule.Rate is what a sample really offers.
type Arrivals struct {
	Rate       float64 // requests per second, above 0
	Burstiness float64 // above 0
	Seed       uint64  // the same one, the same schedule
}

// check says what is wrong with the parameters.
func (a Arrivals) check() error {
	switch {
	case !(a.Rate > 0) || math.IsInf(a.Rate, 0):
		return fmt.Errorf("a rate of %v requests per second, want a finite one above 0", a.Rate)
	case !(a.Burstiness > 0):
		return fmt.Errorf("a burstiness of %v, want one above 0", a.Burstiness)
	}
	return nil
}

// Schedule is when n requests are due. It panics on parameters that are wrong.
func (a Arrivals) Schedule(n int) Schedule {
	if err := a.check(); err != nil {
		panic("load: " + err.Error())
	}
	random := rand.New(rand.NewPCG(a.Seed, 0x6172726976616c73)) // "arrivals": other draws of the seed share nothing with it
	schedule := make(Schedule, n)
	at := 0.0
	for i := range schedule {
		if i > 0 {
			at += a.interval(random)
		}
		if at > maxOffset {
			at = maxOffset // beyond what a duration holds nothing is ever due
		}
		schedule[i] = time.Duration(at * float64(time.Second))
	}
	return schedule
}

// maxOffset is the latest offset of a schedule, in seconds: a century.
const maxOffset = 100 * 365 * 24 * 3600.0

// interval is one sample, in seconds.
func (a Arrivals) interval(random *rand.Rand) float64 {
	switch {
	case math.IsInf(a.Burstiness, 1):
		return 1 / a.Rate
	case a.Burstiness == 1:
		return random.ExpFloat64() / a.Rate
	}
	return gamma(random, a.Burstiness) / (a.Rate * a.Burstiness)
}

// gamma is a sample of the gamma distribution with scale 1, by the method of
// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM
// Transactions on Mathematical Software 26 (2000). A shape below 1 takes a
// sample of shape+1 times U^(1/shape), as section 6 of the paper says.
func gamma(random *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(random, shape+1) * math.Pow(1-random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-random.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// Rate is what the schedule offers, in requests per second: its intervals over
// the time that they take. Infinite where all are due at once, as in a closed
// loop.
func (s Schedule) Rate() float64 {
	if len(s) < 2 || s[len(s)-1] == s[0] {
		return math.Inf(1)
	}
	return float64(len(s)-1) / (s[len(s)-1] - s[0]).Seconds()
}

// Replay is the schedule of recorded arrivals, speed times as fast: each is due
// at its own time over speed. It panics unless speed is above 0 and finite.
func Replay(arrivals []time.Duration, speed float64) Schedule {
	if !(speed > 0) || math.IsInf(speed, 0) {
		panic(fmt.Sprintf("load: a replay %v times as fast, want a finite speed above 0", speed))
	}
	schedule := make(Schedule, len(arrivals))
	for i, at := range arrivals {
		schedule[i] = time.Duration(min(at.Seconds()/speed, maxOffset) * float64(time.Second))
	}
	return schedule
}
