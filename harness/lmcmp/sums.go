package lmcmp

import (
	"context"
	"fmt"
	"slices"
)

// A Comparison of our checksums with the server's.
type Comparison int

// What a comparison came to.
const (
	NotCompared Comparison = iota
	Agree
	Differ
)

// ServerSumsDiffer asks the server for its checksums of blocks in every
// worker's memory and holds them against our own of the same bytes. It needs
// memory of this machine that the server has mapped; of other memory the server
// has no checksums (ErrNoChecksums).
func (c *Client) ServerSumsDiffer(ctx context.Context, blocks []int) (Comparison, error) {
	if c.Transfer != LMCacheDriven {
		return NotCompared, ErrNoChecksums
	}
	for i, w := range c.workers {
		if w.host == nil {
			return NotCompared, ErrNoChecksums
		}
		theirs, err := c.server.Checksums(ctx, w.instance, blocks, c.BlocksPerChunk())
		if err != nil {
			return NotCompared, fmt.Errorf("worker %d: %w", i, err)
		}
		if !slices.Equal(theirs, w.host.Checksums(blocks, c.BlocksPerChunk())) {
			return Differ, nil
		}
	}
	return Agree, nil
}
