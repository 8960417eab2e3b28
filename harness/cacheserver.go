package harness

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/recipe"
)

// StartLMCache starts a real LMCache server for a test, which ends with it.
// Where it is not installed the test is skipped, or fails under -require.
func StartLMCache(tb testing.TB, server recipe.LMCacheServer) *recipe.RunningLMCache {
	tb.Helper()
	if server.Dir == "" {
		server.Dir = tb.TempDir()
	}
	if _, err := recipe.FindLMCache(server.Release); errors.Is(err, recipe.ErrNotInstalled) {
		Missing(tb, "This needs a real cache server: %v.", err)
	}
	launcher, err := launch.New(tb.TempDir())
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := closeContext()
		defer cancel()
		require.NoError(tb, launcher.Close(ctx))
	})
	running, err := server.Start(tb.Context(), launcher)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		require.NoError(tb, running.Stop(ctx))
	})
	return running
}
