package engine

import (
	"crypto/sha256"
	"encoding/binary"
)

// A blockKey identifies the KV of a full block: a hash over its tokens, all
// tokens before it, the cache salt and the model's weights.
type blockKey [sha256.Size]byte

// rootKey is the key before the first block of a prompt.
func rootKey(fingerprint, salt string) blockKey {
	return sha256.Sum256([]byte(fingerprint + "\x00" + salt))
}

// chain is the key of a block with these tokens after a block with key before.
func (before blockKey) chain(tokens []int32) blockKey {
	b := make([]byte, 0, len(before)+4*len(tokens))
	b = append(b, before[:]...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return sha256.Sum256(b)
}

// A block is a page of the KV pool. Who holds a reference may read data; only
// the sequence that took the block empty writes to it, and never once it is
// published. Everything but data belongs to the pool.
type block struct {
	data       []float32 // made at first use
	refs       int
	key        blockKey
	cached     bool   // findable under key
	prev, next *block // neighbours in the free list while refs is 0
}

// A pool is the paged KV cache: a fixed number of blocks with reference
// counts. Free blocks wait in a list, next victim first: those without content
// in front, then the cached ones, least recently used first. It is not safe
// for concurrent use; the engine's lock guards it.
type pool struct {
	size  int
	free  int
	list  block // sentinel of the free list
	byKey map[blockKey]*block
}

func newPool(size int) *pool {
	p := &pool{size: size, byKey: map[blockKey]*block{}}
	p.list.prev, p.list.next = &p.list, &p.list
	for range size {
		p.insert(&block{}, p.list.prev)
	}
	return p
}

// used is the number of blocks that somebody refers to.
func (p *pool) used() int { return p.size - p.free }

// reserve takes the cached blocks of the longest run of keys that is there and
// enough empty ones behind them to make total. It returns nil, and takes
// nothing, if there are not enough free blocks.
func (p *pool) reserve(keys []blockKey, total int) (blocks []*block, hits int) {
	fresh := total
	for _, k := range keys {
		b, ok := p.byKey[k]
		if !ok {
			break
		}
		blocks = append(blocks, b)
		if b.refs > 0 {
			fresh-- // shared with a running sequence: costs no free block
		}
	}
	hits = len(blocks)
	if fresh > p.free {
		return nil, 0
	}
	for _, b := range blocks {
		p.hold(b)
	}
	for len(blocks) < total {
		blocks = append(blocks, p.evict())
	}
	return blocks, hits
}

// hold adds a reference to a cached block.
func (p *pool) hold(b *block) {
	if b.refs == 0 {
		p.remove(b)
	}
	b.refs++
}

// evict takes the first free block and forgets what it held. There must be one.
func (p *pool) evict() *block {
	b := p.list.next
	p.remove(b)
	if b.cached {
		delete(p.byKey, b.key)
		b.cached = false
	}
	b.refs = 1
	return b
}

// publish makes a full block findable. If equal content is there already, the
// block stays private.
func (p *pool) publish(b *block, key blockKey) {
	if _, ok := p.byKey[key]; ok || b.cached {
		return
	}
	b.key, b.cached = key, true
	p.byKey[key] = b
}

// release gives the blocks of a sequence back. Its last block goes first, so
// that of two blocks of one prompt the later one is the earlier victim: a
// prefix without its tail is worth something, a tail without its prefix is not.
func (p *pool) release(blocks []*block) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		if b.refs--; b.refs > 0 {
			continue
		}
		after := &p.list
		if b.cached {
			after = p.list.prev
		}
		p.insert(b, after)
	}
}

// forget drops all cached content; false, and nothing happens, while blocks
// are in use.
func (p *pool) forget() bool {
	if p.used() > 0 {
		return false
	}
	for _, b := range p.byKey {
		b.cached = false
	}
	clear(p.byKey)
	return true
}

func (p *pool) insert(b, after *block) {
	b.prev, b.next = after, after.next
	after.next.prev = b
	after.next = b
	p.free++
}

func (p *pool) remove(b *block) {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
	p.free--
}
