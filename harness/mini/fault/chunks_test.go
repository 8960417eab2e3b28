package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

// chunks is a healthy kv.Store: blocks by all tokens up to their end.
type chunks struct{ stored map[string][]float32 }

func (c *chunks) Chunk() int { return blockSize }

func key(r kv.Request, block int) string {
	return fmt.Sprint(r.Salt, r.Tokens[:(block+1)*blockSize])
}

func (c *chunks) Lookup(_ context.Context, r kv.Request) (found int, err error) {
	for block := range len(r.Tokens) / blockSize {
		if c.stored[key(r, block)] == nil {
			break
		}
		found += blockSize
	}
	return found, nil
}

func (c *chunks) Load(_ context.Context, r kv.Request, tokens int, dst [][]float32) error {
	for block := range (tokens + blockSize - 1) / blockSize {
		values := c.stored[key(r, block)]
		if values == nil {
			return errors.New("a chunk is not stored")
		}
		copy(dst[block], values)
	}
	return nil
}

func (c *chunks) Store(_ context.Context, r kv.Request, src [][]float32) error {
	for block := range len(r.Tokens) / blockSize {
		c.stored[key(r, block)] = slices.Clone(src[block])
	}
	return nil
}

func (c *chunks) Reset(context.Context) error {
	clear(c.stored)
	return nil
}
