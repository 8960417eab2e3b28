package lmcache

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// A chunkHash stands for a chunk and all tokens before it.
type chunkHash [32]byte

// seedHash is what the first chunk is chained to: a server without vLLM in its
// process chains to the hash of nothing and token 0.
var seedHash = blake3.Sum256(binary.BigEndian.AppendUint32(make([]byte, 8), 0))

// hashChunks returns the hashes of the whole chunks among the first end tokens.
func hashChunks(tokens wire.Tokens, chunk, end int) []chunkHash {
	end = max(0, min(end, len(tokens)))
	hashes := make([]chunkHash, 0, end/chunk)
	previous := chunkHash(seedHash)
	b := make([]byte, 0, len(previous)+4*chunk)
	for start := 0; start+chunk <= end; start += chunk {
		b = append(b[:0], previous[:]...)
		for _, t := range tokens[start : start+chunk] {
			b = binary.BigEndian.AppendUint32(b, t)
		}
		previous = blake3.Sum256(b)
		hashes = append(hashes, previous)
	}
	return hashes
}

// An objectKey names the KV of one chunk, of one rank, in one object group.
type objectKey struct {
	hash  chunkHash
	model string
	rank  uint32
	group int
	salt  string
}

// rankOf is how LMCache writes a rank of a world, all of it on one host.
func rankOf(world, worker int) uint32 {
	w, r := uint32(world), uint32(worker)
	return w<<24 | r<<16 | w<<8 | r
}

// fileName is the name of the object in upstream's L2 of files.
func (k objectKey) fileName() string {
	name := fmt.Sprintf("%s@0x%08x@%x@%s", strings.ReplaceAll(k.model, "/", "-SEP-"), k.rank, k.group, hex.EncodeToString(k.hash[:]))
	if k.salt != "" {
		name += "@" + k.salt
	}
	return name + ".data"
}

func (k objectKey) String() string {
	return fmt.Sprintf("%x of %s, rank %#x, group %d", k.hash[:8], k.model, k.rank, k.group)
}

// fileNameIf is fileName where there is an L2.
func (k objectKey) fileNameIf(d *disk) string {
	if d == nil {
		return ""
	}
	return k.fileName()
}
