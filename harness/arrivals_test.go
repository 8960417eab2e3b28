package harness

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
)

func TestParseWindow(t *testing.T) {
	for text, want := range map[string]fixtures.Window{
		"":        {},
		":":       {},
		"30s:2m":  {From: 30 * time.Second, To: 2 * time.Minute},
		":1m":     {To: time.Minute},
		"10m:":    {From: 10 * time.Minute},
		"0s:1ms":  {To: time.Millisecond},
		"1h:1h1s": {From: time.Hour, To: time.Hour + time.Second},
	} {
		got, err := parseWindow(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"30s", "30:60", "-1s:2s", "2s:2s", "3s:2s", ":0s", "a:b", "1s:2s:3s"} {
		_, err := parseWindow(text)
		require.ErrorContains(t, err, "FROM:TO", text)
	}
}

// What must not be compared if different is in the config line.
func TestRateLine(t *testing.T) {
	for args, want := range map[string]string{
		"-rate=inf":                 "rate: closed-loop",
		"-rate=2.5":                 "rate: 2.5",
		"-rate=2.5 -burstiness=0.5": "rate: 2.5,burstiness=0.5",
		"-workload=unique":          "trace: whole",
		"-workload=trace -window=:1m -lengthscale=0.5": "trace: window=:1m,lengthscale=0.5",
		"-rate=10 -burstiness=inf":                     "rate: 10,burstiness=+Inf",
		"-rate=trace -workload=trace":                  "rate: trace",
		"-rate=trace -workload=all -timescale=9":       "rate: trace,timescale=9",
	} {
		require.Contains(t, selected(t, strings.Fields(args)...).configLines(), want, args)
	}
}

func TestOnlyTracesHaveArrivals(t *testing.T) {
	s := selected(t, "-rate=trace", "-timescale=1000")
	var names []string
	for _, w := range s.selection.workloads {
		names = append(names, w.Name)
	}
	require.Equal(t, []string{"trace"}, names)
	var text strings.Builder
	require.NoError(t, s.printPlan(&text))
	require.Contains(t, text.String(), "# not applicable: workload unique has no arrivals of its own, which -rate=trace asks for")
	require.Contains(t, text.String(), "rate trace,timescale=1000")
}

// The estimate is no less than the schedules take.
func TestEstimateKnowsTheSchedule(t *testing.T) {
	s := selected(t, "-backend=baseline", "-workload=unique", "-model=nano", "-inputlen=64", "-blocksize=16", "-requests=9", "-rate=0.01", "-burstiness=inf")
	estimate, err := s.estimate()
	require.NoError(t, err)
	require.Equal(t, 2*800*time.Second, estimate)
}
