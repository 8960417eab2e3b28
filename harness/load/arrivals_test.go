package load

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestArrivals sends a long run in virtual time and looks at the intervals
// between the sends: mean 1/rate, variance 1/(rate²·burstiness), and neighbours
// that do not depend on each other. Bounds are five standard errors of the
// gamma distribution, whose fourth central moment is (3+6/shape)·variance².
func TestArrivals(t *testing.T) {
	const n, rate = 20000, 4.0
	for _, burstiness := range []float64{0.25, 0.5, 1, 2, 10, math.Inf(1)} {
		t.Run(fmt.Sprintf("burstiness %v", burstiness), func(t *testing.T) {
			schedule := Arrivals{Rate: rate, Burstiness: burstiness, Seed: 42}.Schedule(n)
			var sent []time.Duration
			synctest.Test(t, func(t *testing.T) {
				fake := &server{service: constant(time.Millisecond)}
				timelines, report, err := Driver{Client: fake, Schedule: schedule}.Run(t.Context(), requests(n))
				require.NoError(t, err)
				for _, got := range timelines {
					late, ok := got.Lateness()
					require.True(t, ok)
					require.Zero(t, late, "virtual time waits for nobody")
					sent = append(sent, got.Sent.Sub(report.Start))
				}
			})
			gaps := make([]float64, n-1)
			for i := range gaps {
				gaps[i] = (sent[i+1] - sent[i]).Seconds()
			}
			mean, variance, neighbours := moments(gaps)
			wantVariance := 1 / (rate * rate * burstiness)
			tolerance := 5 / math.Sqrt(n)
			require.InDelta(t, 1/rate, mean, tolerance*math.Sqrt(wantVariance)+1e-8, "mean")
			require.InDelta(t, wantVariance, variance, tolerance*wantVariance*math.Sqrt(2+6/burstiness)+1e-8, "variance")
			require.InDelta(t, 0, neighbours, tolerance*wantVariance+1e-8, "covariance of neighbours")
			require.InDelta(t, rate, schedule.Rate(), rate*rate*tolerance*math.Sqrt(wantVariance)+1e-6)
		})
	}
}

// moments are the mean, the variance and the covariance of neighbours.
func moments(values []float64) (mean, variance, neighbours float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for i, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values))
		if i > 0 {
			neighbours += (v - mean) * (values[i-1] - mean) / float64(len(values)-1)
		}
	}
	return mean, variance, neighbours
}

// Burstiness 1 through the gamma sampler is the exponential distribution too:
// a share of e^-1 of the intervals is longer than the mean.
func TestGammaOfShapeOne(t *testing.T) {
	const n = 20000
	for _, shape := range []float64{1, 1 + 1e-12} {
		schedule := Arrivals{Rate: 1, Burstiness: shape, Seed: 7}.Schedule(n)
		longer := 0
		for i := range n - 1 {
			if schedule[i+1]-schedule[i] > time.Second {
				longer++
			}
		}
		require.InDelta(t, math.Exp(-1), float64(longer)/(n-1), 5*0.5/math.Sqrt(n))
	}
}

func TestArrivalsAreAFunctionOfTheirSeed(t *testing.T) {
	a := Arrivals{Rate: 3, Burstiness: 0.7, Seed: 1}
	require.Equal(t, a.Schedule(50), a.Schedule(50))
	require.Equal(t, a.Schedule(50)[:20], a.Schedule(20), "more requests do not move the first ones")
	require.Zero(t, a.Schedule(2)[0], "the first is due at once")
	b := a
	b.Seed++
	require.NotEqual(t, a.Schedule(50), b.Schedule(50))
	require.Empty(t, a.Schedule(0))
}

func TestConstantArrivals(t *testing.T) {
	require.Equal(t, Schedule{0, 250 * time.Millisecond, 500 * time.Millisecond},
		Arrivals{Rate: 4, Burstiness: math.Inf(1)}.Schedule(3))
}

func TestSlowestArrivals(t *testing.T) {
	schedule := Arrivals{Rate: math.SmallestNonzeroFloat64, Burstiness: 1}.Schedule(3)
	require.NoError(t, schedule.check(3), "offsets stay in order where they leave what a duration holds")
}

func TestWrongArrivals(t *testing.T) {
	for _, a := range []Arrivals{
		{Rate: 0, Burstiness: 1},
		{Rate: -1, Burstiness: 1},
		{Rate: math.Inf(1), Burstiness: 1},
		{Rate: math.NaN(), Burstiness: 1},
		{Rate: 1},
		{Rate: 1, Burstiness: -1},
		{Rate: 1, Burstiness: math.NaN()},
	} {
		require.Panics(t, func() { a.Schedule(1) }, "%+v", a)
	}
}

func TestRateOfASchedule(t *testing.T) {
	require.Equal(t, 2.0, Schedule{time.Second, 2 * time.Second, 2 * time.Second}.Rate())
	for _, s := range []Schedule{nil, {0}, {0, 0}} {
		require.True(t, math.IsInf(s.Rate(), 1))
	}
}

func TestReplay(t *testing.T) {
	arrivals := []time.Duration{0, time.Second, time.Second, 3 * time.Second}
	require.Equal(t, Schedule{0, time.Second, time.Second, 3 * time.Second}, Replay(arrivals, 1))
	require.Equal(t, Schedule{0, 250 * time.Millisecond, 250 * time.Millisecond, 750 * time.Millisecond}, Replay(arrivals, 4))
	require.NoError(t, Replay([]time.Duration{0, math.MaxInt64}, 1e-9).check(2))
	for _, speed := range []float64{0, -1, math.Inf(1), math.NaN()} {
		require.Panics(t, func() { Replay(arrivals, speed) })
	}
}
