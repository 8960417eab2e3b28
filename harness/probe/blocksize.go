package probe

import (
	"slices"
	"strconv"

	"github.com/kvproof/kvproof/harness/row"
)

// BlockSize reads the effective block size, in tokens, out of the labels of
// vllm:cache_config_info. It prefers effective_attention_block_size, what the
// attention layers run with, to block_size, which older versions have alone
// and which can still be the configured value where the platform or a hybrid
// model needs another one (both were 32 on vLLM 0.32.0 started with 32).
//
// False: the endpoint does not tell, or its engines run with different sizes
// (BlockSizes names them), so that no single number is true.
func BlockSize(s row.Snapshot) (int, bool) {
	sizes := BlockSizes(s)
	if len(sizes) != 1 {
		return 0, false
	}
	return sizes[0], true
}

// BlockSizes are the distinct effective block sizes of the engines behind one
// endpoint, smallest first.
func BlockSizes(s row.Snapshot) []int {
	var sizes []int
	for _, series := range selected(s, "vllm:cache_config_info", nil) {
		if n, ok := blockSizeOf(series.Labels); ok {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func blockSizeOf(labels map[string]string) (int, bool) {
	for _, name := range []string{"effective_attention_block_size", "block_size"} {
		// Absent settings read "None".
		if n, err := strconv.Atoi(labels[name]); err == nil && n > 0 {
			return n, true
		}
	}
	return 0, false
}
