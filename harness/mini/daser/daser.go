// Package daser plays DaseR in the miniature stack: a KV store behind the
// engine with DaseR's two ways of reuse, and DaseR's HTTP server in front of
// it. Nothing of DaseR runs here; bodies, names and semantics are those that
// its sources show.
//
//	store, err := daser.NewStore(daser.StoreConfig{
//		Mode: daser.Chunk, Model: m, BlockSize: 128, Tiers: tier.Config{L1Bytes: 1 << 30},
//	})
//	defer store.Close()
//	e, err := engine.New(engine.Config{Store: store, ...})
//	...
//	server := daser.NewServer(daser.ServerConfig{Store: store, Engine: "http://127.0.0.1:8001"})
//	err = server.Start(ctx) // the engine must answer by now
//	go http.Serve(listener, server.Handler())
//
// # Prefix
//
// A slot per block of B tokens under a chained hash, so a block is found only
// behind the blocks that it was computed behind. A lookup stops at the first
// block that is missing. Answers are those of a full recompute.
//
// # Chunk
//
// The unit is a whole document, padded to B and prefilled alone from position
// 0; its key is a hash of its own tokens. A lookup takes whole documents, one
// behind the other from the start of the prompt; a load copies their KV and
// turns the keys to where they are now (model.RotateKeys). Documents keep the
// KV of a text that was read without the others: no attention between them.
// That is lossy by design, and the same each time.
//
// # Publishing
//
// Store allocates and copies, a worker writes and then commits; only what is
// committed is visible to Lookup. The engine calls Store before a request's
// last token is out, so an answer in hand does not mean that its KV can be
// found: POST /drain waits for that.
//
// # Beyond DaseR
//
// So that prompts are those of a plan, token for token, and times the
// client's: token_ids in place of text in POST /documents; task_token_ids in
// place of task, and stream, in POST /infer; prefix_token_ids, which replaces
// the server's own prefix, in both; token_ids in the answer where gen_params
// has return_token_ids. GET /health also tells block_tokens, for which DaseR
// has its IPC, and GET and POST /debug/kvcheck belong to [Check]. What is left
// out: the IPC, the web page, and quantized or remote storage.
package daser

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A Mode is how a store reuses KV, DaseR's --cache-reuse-mode.
type Mode string

// The modes.
const (
	Prefix Mode = "prefix"
	Chunk  Mode = "chunk"
)

// Errors that callers tell apart.
var (
	ErrClosed    = errors.New("store is closed")
	ErrNotStored = errors.New("nothing is stored or on its way")
	ErrNoReset   = errors.New("DaseR has no reset: delete documents, send fresh content or restart it")
)

// A StoreConfig describes a store.
type StoreConfig struct {
	Mode      Mode
	Model     *model.Model // whose KV it keeps
	BlockSize int          // B, tokens in a block of the engine
	Tiers     tier.Config
	Planted   func(fault.Fault) bool // which faults are planted right now; nil: none
	Log       io.Writer              // what went wrong, in lines; nil: nowhere
}

func (c StoreConfig) check() error {
	switch {
	case c.Mode != Prefix && c.Mode != Chunk:
		return fmt.Errorf("cache reuse mode %q: there are %s and %s", c.Mode, Prefix, Chunk)
	case c.Model == nil:
		return errors.New("no model")
	case c.BlockSize < 1:
		return fmt.Errorf("block size %d: need at least 1 token", c.BlockSize)
	case c.Tiers.L1Bytes < c.slotBytes():
		return fmt.Errorf("L1 of %d bytes: a slot of %d tokens takes %d", c.Tiers.L1Bytes, c.BlockSize, c.slotBytes())
	case c.Tiers.L2Bytes > 0 && c.Tiers.L1Bytes > c.Tiers.L2Bytes:
		return fmt.Errorf("L1 of %d bytes: larger than L2 of %d", c.Tiers.L1Bytes, c.Tiers.L2Bytes)
	}
	return nil
}

// slotBytes is the KV of one block.
func (c StoreConfig) slotBytes() int64 { return 4 * int64(c.Model.BlockLen(c.BlockSize)) }
