package run_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestClientBound: a difference that the client's own error could make is
// labelled, and one that it could not is not.
func TestClientBound(t *testing.T) {
	at := time.Unix(0, 0)
	pass := func(ttft time.Duration, hits int) run.Pass {
		return run.Pass{HitTokens: hits, Timelines: []row.Timeline{{Sent: at, FirstToken: at.Add(ttft)}}}
	}
	for name, test := range map[string]struct {
		cold, warm time.Duration
		hits       int
		client     run.ClientError
		bound      bool
	}{
		"far apart":                {200 * time.Millisecond, 20 * time.Millisecond, 64, run.ClientError{Before: time.Millisecond, During: 2 * time.Millisecond}, false},
		"wrong before the run":     {30 * time.Millisecond, 20 * time.Millisecond, 64, run.ClientError{Before: 2 * time.Millisecond}, true},
		"wrong beside the load":    {30 * time.Millisecond, 20 * time.Millisecond, 64, run.ClientError{During: 2 * time.Millisecond}, true},
		"a tenth is not over it":   {30 * time.Millisecond, 20 * time.Millisecond, 64, run.ClientError{During: time.Millisecond}, false},
		"slower by the same":       {20 * time.Millisecond, 30 * time.Millisecond, 64, run.ClientError{During: 2 * time.Millisecond}, true},
		"no hits, no difference":   {20 * time.Millisecond, 20 * time.Millisecond, 0, run.ClientError{During: 2 * time.Millisecond}, false},
		"seen too early, no error": {30 * time.Millisecond, 20 * time.Millisecond, 64, run.ClientError{Before: -time.Millisecond, During: -5 * time.Millisecond}, false},
	} {
		t.Run(name, func(t *testing.T) {
			result := run.Result{Cold: pass(test.cold, 0), Warm: pass(test.warm, test.hits)}
			result.Bind(test.client)
			require.Equal(t, test.bound, len(result.Labels) == 1)
			require.Equal(t, test.client, *result.Client)
		})
	}
}
