//go:build vllm && lmcache

package bench_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
)

// TestLMCacheRestarts: LMCache's server is killed and started again between the
// cold and the warm pass. Nothing hangs, the run says what happened, and once
// the engine has found the new server a cycle is healthy again.
func TestLMCacheRestarts(t *testing.T) {
	cell, server := harness.LiveCell(t, harness.Row(t, "lmcache"), harness.TestCell{Requests: 2, Concurrency: 1})
	restarted := beforeWarm(t, server, func() error { return server.Restart(context.WithoutCancel(t.Context()), "lmcache") })
	_, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.NoError(t, restarted())
	require.NotEmpty(t, findings)
	require.Contains(t, []row.Code{row.HitBelowOracle, row.CounterReset, row.WitnessDisagrees, row.Stalled}, findings[0].Code, firstCodes(findings))

	// The engine looks for the server every ten seconds.
	deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for len(findings) > 0 {
		require.NoError(t, deadline.Err(), "five minutes later it still shows %v", findings)
		_, findings, err = cell.Cycle(deadline)
		require.NoError(t, err)
	}
}

// firstCodes are the codes of findings, for messages.
func firstCodes(findings []row.Finding) string {
	var codes []string
	for _, f := range findings {
		codes = append(codes, string(f.Code))
	}
	return strings.Join(codes, " ")
}
