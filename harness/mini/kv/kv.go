// Package kv is the seam between the miniature engine and the caches behind
// it: the engine knows a cache only as a Store. An in-memory store, a client
// of a real cache server and a store with planted faults all fit behind it.
package kv

import "context"

// A Request is a prompt as a cache sees it.
type Request struct {
	ID     string  // the engine's request id
	Tokens []int32 // the whole prompt
	Salt   string  // isolates: equal tokens under different salts never share

	// Computed is how many leading tokens the engine has already, in its own
	// cache: where a lookup finds no more that can be used, no Load follows.
	Computed int

	// What the client asked of the cache for this request alone. The engine
	// obeys: a store sees neither a Lookup nor a Load of a request that skips
	// loading, and no Store of one that skips saving.
	SkipLoad, SkipSave bool
}

// A Store keeps the KV of prompts in chunks of Chunk tokens. All methods are
// safe for concurrent use.
type Store interface {
	// Chunk is the number of tokens in a stored chunk: a multiple of the
	// engine's block size.
	Chunk() int

	// Lookup returns how many leading tokens of r can be loaded: a multiple of
	// Chunk on a healthy store, at most len(r.Tokens).
	Lookup(ctx context.Context, r Request) (tokens int, err error)

	// Load fills the first tokens tokens of dst, the paged KV of r. dst[i]
	// is the block of tokens i*B … (i+1)*B-1, laid out as the model lays it
	// out. A chunk that is stored is loaded whole, so dst covers
	// ceil(tokens/B) blocks. An error means that dst must not be used.
	Load(ctx context.Context, r Request, tokens int, dst [][]float32) error

	// Store keeps the whole chunks of r from src, its paged KV. It returns
	// once src may be reused; the chunks become visible to Lookup later.
	Store(ctx context.Context, r Request, src [][]float32) error

	// Reset forgets everything that is stored.
	Reset(ctx context.Context) error
}
