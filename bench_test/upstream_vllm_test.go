//go:build vllm

package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// TestRealUpstreamLoader: the real vllm bench serve against the miniature
// engine. It takes a minute or more for each of its starts.
func TestRealUpstreamLoader(t *testing.T) {
	if _, err := vllmbench.Executable(""); err != nil {
		harness.Missing(t, "The real client is not installed: %v.", err)
	}
	out, results, err := loaded(t, "", "-stack=mini", "-backend=lmcache", "-requests=8", "-inputlen=256")
	require.NoError(t, err, "%s", out)
	checkUpstream(t, results, "lmcache", "cold", 8)
}
