package harness

import (
	"math"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedulerQuantile(t *testing.T) {
	buckets := []float64{math.Inf(-1), 0.001, 0.002, 0.004, math.Inf(1)}
	before := &metrics.Float64Histogram{Counts: []uint64{10, 0, 5, 0}, Buckets: buckets}
	after := &metrics.Float64Histogram{Counts: []uint64{60, 49, 6, 0}, Buckets: buckets}
	grown := added(before, after)
	require.Equal(t, []uint64{50, 49, 1, 0}, grown.Counts)
	require.Equal(t, time.Millisecond, upperQuantile(grown, 0.5))
	require.Equal(t, 2*time.Millisecond, upperQuantile(grown, 0.99))
	require.Equal(t, 4*time.Millisecond, upperQuantile(grown, 1))
	require.Zero(t, upperQuantile(added(after, after), 0.99), "nothing happened")
	require.Zero(t, upperQuantile(added(nil, after), 0.99), "not known")
	require.Equal(t, 4*time.Millisecond, upperQuantile(&metrics.Float64Histogram{Counts: []uint64{0, 0, 0, 1}, Buckets: buckets}, 0.5), "the last bucket has no end")
}
