package store

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A key names a chunk: the first half of a SHA-256 over the weights, the salt
// and every token up to the chunk's end, so equal keys mean equal KV.
type key = tier.Key

// keys returns the keys of the whole chunks of r, in order.
func (s *Store) keys(r kv.Request) []key {
	keys := make([]key, 0, len(r.Tokens)/s.cfg.Chunk)
	previous := root(s.cfg.Fingerprint, r.Salt)
	for start := 0; start+s.cfg.Chunk <= len(r.Tokens); start += s.cfg.Chunk {
		previous = chain(previous, r.Tokens[start:start+s.cfg.Chunk])
		keys = append(keys, previous)
	}
	return keys
}

// root is what the first chunk is chained to. The length in front keeps
// ("ab", "c") and ("a", "bc") apart.
func root(fingerprint, salt string) key {
	b := binary.AppendUvarint(nil, uint64(len(fingerprint)))
	b = append(b, fingerprint...)
	return half(append(b, salt...))
}

func chain(previous key, tokens []int32) key {
	b := make([]byte, 0, len(previous)+4*len(tokens))
	b = append(b, previous[:]...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return half(b)
}

func half(b []byte) (k key) {
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}
