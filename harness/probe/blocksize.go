package probe

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/kvproof/kvproof/harness/row"
)

// ErrNoBlockSize says that an endpoint does not export its block size: it is
// unknown, which is not a difference.
var ErrNoBlockSize = errors.New("vllm:cache_config_info with a block size is not exported")

// BlockSize reads the effective block size, in tokens, out of the labels of
// vllm:cache_config_info. It prefers effective_attention_block_size, what the
// attention layers run with, to block_size, which older versions have alone
// and which can still be the configured value where the platform or a hybrid
// model needs another one (both were 32 on vLLM 0.32.0 started with 32).
//
// Engines of one server that disagree are an error that names both sizes.
func BlockSize(s row.Snapshot) (int, error) {
	size := 0
	for _, series := range selected(s, "vllm:cache_config_info", nil) {
		n, ok := blockSizeOf(series.Labels)
		if !ok {
			continue
		}
		if size != 0 && n != size {
			return 0, fmt.Errorf("reading the block size of %s: engines disagree: %d and %d", s.Probe, size, n)
		}
		size = n
	}
	if size == 0 {
		return 0, fmt.Errorf("reading the block size of %s: %w", s.Probe, ErrNoBlockSize)
	}
	return size, nil
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
