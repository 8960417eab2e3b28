package connector

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// What the engine has of its own is not loaded, and nothing stays locked for it.
func TestAHitThatTheEngineHasIsFreed(t *testing.T) {
	s := serve(t, lmcache.Config{})
	c := connect(t, s, EngineDriven, "m")
	r, src := prompt("a", 1, 2*chunk+3), paged(1, 2*chunk+3)
	require.NoError(t, c.Store(t.Context(), r, src))
	found(t, c, r, 2*chunk)
	tokens := r.Tokens
	for _, test := range []struct {
		tokens, computed, found int
		locks                   string
	}{
		{2*chunk + 3, 2 * chunk, 2 * chunk, "0"},
		{2 * chunk, 2*chunk - 1, 2 * chunk, "0"}, // the last token is computed
		{2*chunk + 3, chunk, 2 * chunk, "2"},     // the second chunk is loaded, and the first with it
	} {
		r.ID, r.Tokens, r.Computed = fmt.Sprint(test), tokens[:test.tokens], test.computed
		got, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, test.found, got)
		locks, sessions := locked(t, s)
		require.Equal(t, test.locks, locks, "%+v", test)
		require.Equal(t, test.locks == "0", sessions == "0", "%+v", test)
	}
}
