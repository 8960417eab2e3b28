package store

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
)

// A ChunkInfo describes one stored chunk for somebody who wants to damage it.
type ChunkInfo struct {
	Chunk  int    `json:"chunk"`      // number for FlipByte
	Key    string `json:"key"`        // hash over weights, salt and all tokens up to its end
	Salt   string `json:"cache_salt"` // as the request gave it
	Start  int    `json:"start"`      // position of its first token
	Tokens int    `json:"tokens"`
	Bytes  int    `json:"bytes"`
}

// Chunks lists what is stored, ordered by key, so that a chunk keeps its
// number as long as nothing is stored or evicted.
func (s *Store) Chunks() []ChunkInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]ChunkInfo, 0, len(s.chunks))
	for i, c := range s.ordered() {
		infos = append(infos, ChunkInfo{
			Chunk: i, Key: hex.EncodeToString(c.key[:]), Salt: c.salt,
			Start: c.start, Tokens: s.cfg.Chunk, Bytes: 4 * len(c.values),
		})
	}
	return infos
}

// FlipByte inverts the bits of the byte at offset of a chunk, counted as in
// Chunks. Values are float32, little-endian: offset 4i+3 holds the sign and
// most of the exponent of value i. Nothing else notices, as in the real store.
func (s *Store) FlipByte(number, offset int) (ChunkInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.ordered()
	if number < 0 || number >= len(all) {
		return ChunkInfo{}, fmt.Errorf("flipping a byte of chunk %d: there are %d chunks", number, len(all))
	}
	c := all[number]
	if offset < 0 || offset >= 4*len(c.values) {
		return ChunkInfo{}, fmt.Errorf("flipping byte %d of chunk %d: it has %d bytes", offset, number, 4*len(c.values))
	}
	values := slices.Clone(c.values)
	bits := math.Float32bits(values[offset/4]) ^ 0xff<<(8*(offset%4))
	values[offset/4] = math.Float32frombits(bits)
	c.values = values
	return ChunkInfo{
		Chunk: number, Key: hex.EncodeToString(c.key[:]), Salt: c.salt,
		Start: c.start, Tokens: s.cfg.Chunk, Bytes: 4 * len(c.values),
	}, nil
}

// ordered returns the chunks by key. s.mu is held.
func (s *Store) ordered() []*chunk {
	all := make([]*chunk, 0, len(s.chunks))
	for _, e := range s.chunks {
		all = append(all, e.Value.(*chunk))
	}
	slices.SortFunc(all, func(a, b *chunk) int { return slices.Compare(a.key[:], b.key[:]) })
	return all
}
