package store

import (
	"encoding/hex"
	"fmt"
	"math"
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
	keys := s.objects.Keys()
	infos := make([]ChunkInfo, 0, len(keys))
	for i, k := range keys {
		infos = append(infos, s.info(i, k))
	}
	return infos
}

func (s *Store) info(number int, k key) ChunkInfo {
	from := s.origins[k]
	return ChunkInfo{
		Chunk: number, Key: hex.EncodeToString(k[:]), Salt: from.salt,
		Start: from.start, Tokens: s.cfg.Chunk, Bytes: int(s.ChunkBytes()),
	}
}

// FlipByte inverts the bits of the byte at offset of a chunk, counted as in
// Chunks, in every tier that has it. Values are float32, little-endian: offset
// 4i+3 holds the sign and most of the exponent of value i. Nothing else
// notices, as in the real store.
func (s *Store) FlipByte(number, offset int) (ChunkInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.objects.Keys()
	if number < 0 || number >= len(keys) {
		return ChunkInfo{}, fmt.Errorf("flipping a byte of chunk %d: there are %d chunks", number, len(keys))
	}
	info := s.info(number, keys[number])
	if offset < 0 || offset >= info.Bytes {
		return ChunkInfo{}, fmt.Errorf("flipping byte %d of chunk %d: it has %d bytes", offset, number, info.Bytes)
	}
	flipped := s.objects.Mutate(keys[number], func(values []float32) {
		bits := math.Float32bits(values[offset/4]) ^ 0xff<<(8*(offset%4))
		values[offset/4] = math.Float32frombits(bits)
	})
	if !flipped {
		return ChunkInfo{}, fmt.Errorf("flipping byte %d of chunk %d: its file in L2 could not be read or written", offset, number)
	}
	return info, nil
}
