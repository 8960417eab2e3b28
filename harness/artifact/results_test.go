package artifact_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
)

func TestChanges(t *testing.T) {
	series := func(name string, value float64, labels ...string) row.Series {
		s := row.Series{Name: name, Value: value}
		for i := 0; i < len(labels); i += 2 {
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	before := row.Snapshot{Series: []row.Series{series("hits_total", 3, "result", "hit"), series("up", 1)}}
	after := row.Snapshot{Series: []row.Series{
		series("hits_total", 5, "result", "hit"), series("hits_total", 4, "result", `a "miss"`), series("up", 1),
		series("t_bucket", 9, "le", "1"), series("t_count", 2), series("t_created", 77),
	}}
	require.Equal(t, map[string]float64{
		"hits_total": 6, `hits_total{result="hit"}`: 2, `hits_total{result="a \"miss\""}`: 4, "up": 0, "t_count": 2,
	}, artifact.Changes(before, after))
}

func TestAnswersContained(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers [][]string
		outputs []string
		want    any
	}{
		{"whatever the case", [][]string{{" Paris "}}, []string{"It is PARIS."}, 1.0},
		{"one of several", [][]string{{"x", "Rome"}, {"Oslo"}}, []string{"rome", "bergen"}, 0.5},
		{"only where a right answer is known", [][]string{nil, {"Oslo"}}, []string{"rome", "oslo"}, 1.0},
		{"none is known", [][]string{nil}, []string{"rome"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := artifact.AnswersContained(c.answers, c.outputs)
			if c.want == nil {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, c.want, *got)
		})
	}
}

func TestOccupancy(t *testing.T) {
	latency, elapsed := 5170.55, 67170.0 // of a published run of 200 requests, 16 in flight
	s := artifact.Summary{NumRequests: 200, LatencyMean: &latency, PhaseElapsed: &elapsed}
	s.Occupy(16)
	require.InDelta(t, 0.962, *s.Occupancy, 1e-3)
	s = artifact.Summary{NumRequests: 2, LatencyMean: &elapsed, PhaseElapsed: &elapsed}
	s.Occupy(16)
	require.InDelta(t, 1, *s.Occupancy, 1e-12, "no more in flight than there are requests")
	s = artifact.Summary{NumRequests: 2, NumErrors: 1, LatencyMean: &elapsed, PhaseElapsed: &elapsed}
	s.Occupy(16)
	require.Nil(t, s.Occupancy)
	s = artifact.Summary{NumRequests: 2, PhaseElapsed: &elapsed}
	s.Occupy(16)
	require.Nil(t, s.Occupancy, "unknown, not 0")
}

func TestConsole(t *testing.T) {
	ttft, rate := 12.345678, 0.5
	var b strings.Builder
	artifact.WriteConsole(&b, "lmcache unique", "results.json", artifact.Results{
		Result:      map[string]artifact.Phase{"warm": {Summary: artifact.Summary{TTFTMean: &ttft, BackendHitRate: &rate}}},
		Correctness: artifact.Correctness{Reason: "the texts are missing"},
	})
	require.Equal(t, `== LMCACHE UNIQUE ==
warm_ttft_ms_mean: 12.3457
warm_latency_ms_mean: null
warm_elapsed_ms: null
warm_prompt_tok_per_s: null
warm_backend_cache_hit_rate: 0.5
warm_backend_server_cache_hit_rate: 0.5
warm_answer_contains_accuracy: null
cold_warm_exact_match_available: false
cold_warm_exact_match_accuracy: null
cold_warm_exact_match_reason: the texts are missing
results: results.json
`, b.String())
}
