package paced_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/row"
)

// TestProbe: what is returned is the difference between what the client saw and
// what the server did.
func TestProbe(t *testing.T) {
	server, err := paced.Start(paced.Config{TTFT: time.Millisecond, ITL: 100 * time.Microsecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	client := openai.New(openai.Config{BaseURL: server.URL, Model: paced.Model, Concurrency: 1})
	t.Cleanup(client.Close)

	probe, err := paced.StartProbe(t.Context(), server, seen{client, 7 * time.Second})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		truth, err := server.Truth(t.Context())
		return err == nil && len(truth.Records) >= 3
	}, time.Minute, time.Millisecond)
	wrong, err := probe.Stop(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(wrong), 3)
	for _, d := range wrong {
		require.Greater(t, d, 6*time.Second)
	}
}

// seen is a client that sees every first token too late.
type seen struct {
	row.Client
	by time.Duration
}

func (s seen) Do(ctx context.Context, r row.Request) row.Timeline {
	t := s.Client.Do(ctx, r)
	t.FirstToken = t.FirstToken.Add(s.by)
	return t
}
