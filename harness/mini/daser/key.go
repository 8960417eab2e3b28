package daser

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// littleEndian is a token array as DaseR hashes it: int32, little-endian.
func littleEndian(tokens []int32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// chunkKey names a document: xxh3-128 of its token array, as DaseR names it.
// A salt, which DaseR does not know, is hashed behind the tokens; without one
// the key is DaseR's.
func chunkKey(tokens []byte, salt string) tier.Key {
	if salt == "" {
		return xxh3.Hash128(tokens).Bytes()
	}
	h := xxh3.New()
	_, _ = h.Write(tokens) // never fails
	_, _ = h.WriteString(salt)
	return h.Sum128().Bytes()
}

// blockKeys name the whole blocks of a prompt, each by the key before it and
// its own tokens, the first one by weights and salt.
func blockKeys(fingerprint string, r kv.Request, size int) []tier.Key {
	keys := make([]tier.Key, 0, len(r.Tokens)/size)
	previous := tier.Key(xxh3.HashString128(fingerprint + "\x00" + r.Salt).Bytes())
	for at := 0; at+size <= len(r.Tokens); at += size {
		b := append(previous[:len(previous):len(previous)], littleEndian(r.Tokens[at:at+size])...)
		previous = xxh3.Hash128(b).Bytes()
		keys = append(keys, previous)
	}
	return keys
}
