package lmcmp

import (
	"fmt"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A Content decides the bytes of a run of blocks: of a seed and of where each
// block is in its prompt, never of which paged block it happens to be in.
type Content struct {
	Seed  uint64
	First int // position of the first block in the prompt, in blocks
}

// Memory is the paged KV of one worker, in the geometry of a [Shape]. Blocks
// are lists of distinct ids. Its methods are called by one goroutine at a time.
type Memory interface {
	// Tensors describe it to a server, a layer each; nil where it is not shared.
	Tensors() []wire.Tensor
	// Registered says that the server has opened it.
	Registered() error
	// Write puts content into blocks. What it returns is the IPC handle of the
	// event after which the content is there, which a server waits for; on a CPU
	// it is there at once and the handle is empty.
	Write(blocks []int, c Content) (event []byte, err error)
	// Poison puts bytes into blocks that no content has.
	Poison(blocks []int) (event []byte, err error)
	// Wait returns when an event has come: one that Write or Poison returned, or
	// one that a server answered with.
	Wait(event []byte) error
	// Verify compares blocks with content, and returns what differs.
	Verify(blocks []int, c Content) ([]Mismatch, error)
	// Close gives the memory back. It may be called again.
	Close() error
}

// A Mismatch is a block of one plane of one layer that does not hold what it
// should.
type Mismatch struct {
	Rank     int    `json:"rank"`
	Layer    int    `json:"layer"`
	Plane    int    `json:"plane"`    // 0: K, or MLA's only one; 1: V
	Position int    `json:"position"` // of the block in the prompt, in blocks
	Block    int    `json:"block"`    // paged block
	Byte     int    `json:"byte"`     // offset of the first byte that differs in the block
	Want     byte   `json:"want"`
	Got      byte   `json:"got"`
	Looks    string `json:"looks"` // like what
}

func (m Mismatch) String() string {
	plane := "K"
	if m.Plane == 1 {
		plane = "V"
	}
	return fmt.Sprintf("layer %d %s, block %d of the prompt (paged block %d), byte %d: want %#02x, got %#02x (%s)", m.Layer, plane, m.Position, m.Block, m.Byte, m.Want, m.Got, m.Looks)
}

// Chunk is the chunk of the prompt that the mismatch lies in, where a chunk has
// that many blocks.
func (m Mismatch) Chunk(blocks int) int { return m.Position / blocks }

// MaxMismatches bounds what Verify returns: one is enough to fail, some show
// a pattern.
const MaxMismatches = 16
