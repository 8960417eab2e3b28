package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

// A memStore is a kv.Store in memory whose answers a test can bend.
type memStore struct {
	chunk, block int // tokens

	mu      sync.Mutex
	chunks  map[blockKey][][]float32
	stored  int // calls
	looked  int
	loads   int
	resets  int
	lookup  func(ctx context.Context, found int) (int, error) // nil: the truth
	loaded  func(dst [][]float32) error                       // nil: nothing
	onStore func()
}

func newMemStore(chunk, block int) *memStore {
	return &memStore{chunk: chunk, block: block, chunks: map[blockKey][][]float32{}}
}

func (m *memStore) Chunk() int { return m.chunk }

func (m *memStore) keys(r kv.Request) []blockKey {
	var keys []blockKey
	key := rootKey("", r.Salt)
	for at := 0; at+m.chunk <= len(r.Tokens); at += m.chunk {
		key = key.chain(r.Tokens[at : at+m.chunk])
		keys = append(keys, key)
	}
	return keys
}

func (m *memStore) Lookup(ctx context.Context, r kv.Request) (int, error) {
	m.mu.Lock()
	m.looked++
	found := 0
	for _, k := range m.keys(r) {
		if m.chunks[k] == nil {
			break
		}
		found += m.chunk
	}
	bend := m.lookup
	m.mu.Unlock()
	if bend != nil {
		return bend(ctx, found)
	}
	return found, nil
}

func (m *memStore) Load(_ context.Context, r kv.Request, tokens int, dst [][]float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	if len(dst) != blocksFor(tokens, m.block) {
		return errors.New("dst does not cover the tokens")
	}
	for i, k := range m.keys(r) {
		for b, data := range m.chunks[k] {
			if at := i*m.chunk/m.block + b; at < len(dst) {
				copy(dst[at], data)
			}
		}
	}
	if m.loaded != nil {
		return m.loaded(dst)
	}
	return nil
}

func (m *memStore) Store(_ context.Context, r kv.Request, src [][]float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored++
	if m.onStore != nil {
		m.onStore()
	}
	per := m.chunk / m.block
	for i, k := range m.keys(r) {
		if m.chunks[k] != nil {
			continue
		}
		for _, data := range src[i*per : (i+1)*per] {
			m.chunks[k] = append(m.chunks[k], append([]float32(nil), data...))
		}
	}
	return nil
}

func (m *memStore) Reset(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets++
	clear(m.chunks)
	return nil
}
