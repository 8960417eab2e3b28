package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestBlockSizeReaches: -blocksize arrives everywhere that must agree on it.
func TestBlockSizeReaches(t *testing.T) {
	b := settings.BlockSize
	cell, server := harness.StartCell(t, harness.TestCell{Row: "lmcache", Workload: "documents"})

	t.Run("place=engine", func(t *testing.T) { require.Equal(t, b, readBack(t, server, "engine")) })
	t.Run("place=lmcache-chunk", func(t *testing.T) { require.Equal(t, b, readBack(t, server, "lmcache backend")) })
	t.Run("place=law", func(t *testing.T) {
		require.Equal(t, b, server.Law.Unit)
		for _, w := range server.Witnesses {
			require.Equal(t, b, w.Law.Unit, w.Name)
		}
	})
	t.Run("place=prompts", func(t *testing.T) {
		result, findings, err := cell.Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		// Questions to one document share everything up to the end of the
		// padded document, which is a multiple of B.
		shared := sharedPrefixes(result.Cold.Requests)
		require.NotEmpty(t, shared)
		for _, n := range shared {
			require.Zero(t, n%b, "prefix of %d tokens", n)
		}
	})
	t.Run("place=hits", func(t *testing.T) {
		result, findings, err := cell.Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		for i, request := range result.Warm.Requests {
			cached, ok := result.Warm.Timelines[i].Cached()
			require.True(t, ok)
			require.Equal(t, min(len(request.Prompt)/b*b, len(request.Prompt)-1), cached)
		}
	})
}

// TestBlockSizeReachesDaseR: DaseR's rows read it back too.
func TestBlockSizeReachesDaseR(t *testing.T) {
	for _, name := range []string{"daser-prefix", "daser-chunk"} {
		t.Run("backend="+name, func(t *testing.T) {
			_, server := harness.StartCell(t, harness.TestCell{Row: name, Workload: "documents"})
			require.Equal(t, settings.BlockSize, readBack(t, server, "engine"))
			require.Equal(t, settings.BlockSize, readBack(t, server, name+" backend"))
		})
	}
}

// TestBlockSizeIgnored: a server that runs with another size is found before
// anything is measured on it.
func TestBlockSizeIgnored(t *testing.T) {
	_, server := harness.StartCell(t, harness.TestCell{Row: "engine-cache", Faults: []fault.Fault{fault.BlockSizeIgnored}})
	findings := run.Start(t.Context(), server, settings.BlockSize)
	require.NotEmpty(t, findings)
	require.Equal(t, row.BlockSizeIgnored, findings[0].Code)
}

func readBack(t *testing.T, server *row.Server, name string) int {
	t.Helper()
	for _, reader := range server.BlockSize {
		if reader.Server == name {
			size, err := reader.Read(t.Context())
			require.NoError(t, err)
			return size
		}
	}
	require.Fail(t, "no server tells its block size", name)
	return 0
}

// sharedPrefixes are the lengths of the prefixes that pairs of requests have
// in common, where that is more than the system prefix.
func sharedPrefixes(requests []row.Request) (lengths []int) {
	for i, a := range requests {
		for _, b := range requests[:i] {
			n := 0
			for n < min(len(a.Prompt), len(b.Prompt)) && a.Prompt[n] == b.Prompt[n] {
				n++
			}
			if n > 0 {
				lengths = append(lengths, n)
			}
		}
	}
	return lengths
}
