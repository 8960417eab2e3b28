package cachebench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/row"
)

// compare holds every byte against what was stored, and the server's checksums
// of the same memory, where it has any, against ours.
func (c *client) compare(ctx context.Context, sequence int, r lmcmp.Request, blocks []int) error {
	mismatches, err := c.client.Verify(blocks, c.content(sequence))
	if err != nil {
		return err
	}
	sums, err := c.client.ServerSumsDiffer(ctx, blocks)
	if errors.Is(err, lmcmp.ErrNoChecksums) || errors.Is(err, lmcmp.ErrNoHTTP) {
		sums, err = lmcmp.NotCompared, nil
	}
	c.record.call("checksum", "warm", r.ID, err)
	if err != nil {
		return errStop
	}
	c.record.mu.Lock()
	result := c.record.result
	switch {
	case len(mismatches) > 0 || sums == lmcmp.Differ:
		result.ChecksumBad++
	case c.counts:
		result.ChecksumOK++
	}
	if c.counts && sums != lmcmp.NotCompared {
		result.ServerSums++
	}
	c.record.mu.Unlock()

	if len(mismatches) > 0 {
		per := c.client.BlocksPerChunk()
		m := mismatches[0]
		more := ""
		if len(mismatches) > 1 {
			more = fmt.Sprintf("; %d blocks or more differ, in chunks %s", len(mismatches), chunksOf(mismatches, per))
		}
		c.record.finding(row.Finding{
			Code: row.KVDiffers, Phase: "warm", Request: r.ID,
			Evidence: fmt.Sprintf("what was retrieved is not what was stored: worker %d, chunk %d, %s%s", m.Rank, m.Chunk(per), m, more),
			Advice:   "the hit was reported and served: nothing else shows it",
		})
	} else if sums == lmcmp.Differ {
		c.record.finding(row.Finding{
			Code: row.ChecksumDiffers, Phase: "warm", Request: r.ID,
			Evidence: "every byte of the client's memory is right and the server's checksums of it are others",
			Advice:   "the server looks at other memory than the client: compare the registered shape and block ids",
		})
	}
	if len(mismatches) > 0 || sums == lmcmp.Differ {
		return errStop
	}
	c.config.Progress(fmt.Sprintf("[seq %d] CHECKSUM MATCH OK", sequence))
	return nil
}

// chunksOf lists the chunks of mismatches, each once.
func chunksOf(mismatches []lmcmp.Mismatch, per int) string {
	var list []string
	seen := map[int]bool{}
	for _, m := range mismatches {
		if chunk := m.Chunk(per); !seen[chunk] {
			seen[chunk] = true
			list = append(list, fmt.Sprint(chunk))
		}
	}
	return strings.Join(list, ", ")
}
