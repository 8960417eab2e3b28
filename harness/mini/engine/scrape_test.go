package engine

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// scrape is what /metrics shows at one moment.
type scrape []*dto.MetricFamily

func gather(t testing.TB, e *Engine) scrape {
	t.Helper()
	families, err := e.metrics.registry.Gather()
	require.NoError(t, err)
	return families
}

// series reads one series of /metrics, summed over its labels but the given
// ones ("source", "device", …); of a histogram, the sum.
func series(t testing.TB, e *Engine, name string, labels ...string) float64 {
	t.Helper()
	return gather(t, e).sum(t, name, labels...)
}

func (s scrape) sum(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	sum, found := 0.0, false
	for _, f := range s {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if hasLabels(m, labels) {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	require.True(t, found, "no series %s %v", name, labels)
	return sum
}

func hasLabels(m *dto.Metric, want []string) bool {
	have := map[string]string{}
	for _, l := range m.Label {
		have[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(want); i += 2 {
		if have[want[i]] != want[i+1] {
			return false
		}
	}
	return true
}
