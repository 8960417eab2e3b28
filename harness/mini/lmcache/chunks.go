package lmcache

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// A ChunkInfo describes one stored object for somebody who wants to damage it.
type ChunkInfo struct {
	Chunk int    `json:"chunk"` // number for FlipByte
	Key   string `json:"key"`   // hash over all tokens up to its end
	Model string `json:"model_name"`
	Salt  string `json:"cache_salt"`
	Bytes int    `json:"bytes"`
}

// stored lists what is readable in L1 or L2, ordered by key, so that an object
// keeps its number as long as nothing is stored or evicted. The lock is held.
func (o *objects) stored() []objectKey {
	keys := maps.Clone(o.onDisk)
	if keys == nil {
		keys = map[objectKey]int{}
	}
	for key := range keys {
		if !o.disk.has(key.fileName()) {
			delete(keys, key)
		}
	}
	for key, x := range o.byKey {
		if x.used != nil {
			keys[key] = len(x.place.data)
		}
	}
	return slices.SortedFunc(maps.Keys(keys), func(a, b objectKey) int {
		if c := bytes.Compare(a.hash[:], b.hash[:]); c != 0 {
			return c
		}
		return bytes.Compare([]byte(a.fileName()), []byte(b.fileName()))
	})
}

// Chunks lists what is stored by this server.
func (s *Server) Chunks() []ChunkInfo {
	o := s.objects
	o.mu.Lock()
	defer o.mu.Unlock()
	infos := []ChunkInfo{}
	for i, key := range o.stored() {
		infos = append(infos, o.info(i, key))
	}
	return infos
}

func (o *objects) info(number int, key objectKey) ChunkInfo {
	size := o.onDisk[key]
	if x := o.byKey[key]; x != nil {
		size = len(x.place.data)
	}
	return ChunkInfo{Chunk: number, Key: hex.EncodeToString(key.hash[:]), Model: key.model, Salt: key.salt, Bytes: size}
}

// FlipByte inverts the bits of the byte at offset of an object, counted as in
// Chunks, in every tier that has it. Nothing else notices, as upstream.
func (s *Server) FlipByte(number, offset int) (ChunkInfo, error) {
	o := s.objects
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := o.stored()
	if number < 0 || number >= len(keys) {
		return ChunkInfo{}, fmt.Errorf("flipping a byte of chunk %d: there are %d chunks", number, len(keys))
	}
	key := keys[number]
	info := o.info(number, key)
	if offset < 0 || offset >= info.Bytes {
		return ChunkInfo{}, fmt.Errorf("flipping byte %d of chunk %d: it has %d bytes", offset, number, info.Bytes)
	}
	if x := o.byKey[key]; x != nil {
		x.place.data[offset] ^= 0xff
		o.flush(x)
	}
	if o.disk.has(key.fileNameIf(o.disk)) {
		data := make([]byte, info.Bytes)
		err := o.disk.read(key.fileName(), data)
		if err == nil {
			if x := o.byKey[key]; x != nil {
				copy(data, x.place.data)
			} else {
				data[offset] ^= 0xff
			}
			err = o.disk.write(key.fileName(), data)
		}
		if err != nil {
			return ChunkInfo{}, fmt.Errorf("flipping byte %d of chunk %d: %w", offset, number, err)
		}
	}
	return info, nil
}
