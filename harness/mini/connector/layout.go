package connector

import (
	"fmt"
	"unsafe"
)

// The engine's block is [layer][K or V][token][value], the server's chunk
// [K or V][layer][token][value], both float32 as the machine has them.

// chunkBytes is the size of a chunk.
func (c *Connector) chunkBytes() int { return 4 * 2 * c.config.Layers * c.chunk * c.config.Hidden }

// blockLen is the number of values in a block.
func (c *Connector) blockLen() int { return 2 * c.config.Layers * c.config.BlockSize * c.config.Hidden }

// copyChunk copies chunk number n between the blocks of a prompt and bytes.
// Blocks beyond the last and those that are nil are left out.
func (c *Connector) copyChunk(chunk []byte, n int, blocks [][]float32, toBlocks bool) error {
	if len(chunk) != c.chunkBytes() {
		return fmt.Errorf("chunk %d has %d bytes, want %d", n, len(chunk), c.chunkBytes())
	}
	perChunk, run := c.chunk/c.config.BlockSize, c.config.BlockSize*c.config.Hidden
	for b := range perChunk {
		i := n*perChunk + b
		if i >= len(blocks) || blocks[i] == nil {
			continue
		}
		if len(blocks[i]) != c.blockLen() {
			return fmt.Errorf("block %d has %d values, want %d", i, len(blocks[i]), c.blockLen())
		}
		for plane := range 2 {
			for layer := range c.config.Layers {
				values := raw(blocks[i][(layer*2+plane)*run:][:run])
				at := 4 * ((plane*c.config.Layers+layer)*perChunk + b) * run
				if toBlocks {
					copy(values, chunk[at:])
				} else {
					copy(chunk[at:], values)
				}
			}
		}
	}
	return nil
}

// raw is the memory of values.
func raw(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}
