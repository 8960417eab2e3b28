package lmcache

import (
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// stubEvent is what a server without a GPU says in the place of an IPC handle.
const stubEvent = "stub_ipc_handle"

// registerPaged maps a client's paged KV. The same instance again replaces it.
func (s *Server) registerPaged(r *wire.RegisterKVCache) error {
	if !s.config.offers(LMCacheDriven) {
		return fmt.Errorf("no handler is registered for operation %s: this server is %s only", r.Op(), s.config.Transfer)
	}
	p, err := openPaged(r, s.config.Chunk, s.config.GPU)
	if err != nil {
		return err
	}
	s.unregisterPaged(r.Instance)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paged[r.Instance] = p
	s.addLayout(p.model, p.world, s.objectSizes(p))
	return nil
}

// objectSizes are the bytes of a chunk, by object group.
func (s *Server) objectSizes(p *paged) []int {
	var sizes []int
	for i := range p.groups {
		size := p.groups[i].chunkBytes(s.config.Chunk)
		if i == 0 || s.config.Separate {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1] += size
	}
	return sizes
}

func (s *Server) unregisterPaged(instance int) {
	s.mu.Lock()
	p := s.paged[instance]
	delete(s.paged, instance)
	if p != nil {
		s.dropLayout(p.model, p.world)
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	if err := p.close(); err != nil {
		s.log.Printf("unregistering instance %d: %v", instance, err)
	}
}

// A copying is a transfer between a client's blocks and objects.
type copying struct {
	paged  *paged
	keys   []objectKey // chunk by chunk, the objects of each one after the other
	sizes  []int       // of the objects of one chunk
	blocks [][]int     // by group
	chunk  int
	short  bool    // there are too few block ids, or one that is no block
	pieces []Piece // what a GPU is to copy
}

// begin checks a transfer and keeps the client's memory mapped until
// using.RUnlock. No copying and no error: nobody is registered.
func (s *Server) begin(k *wire.Key, instance int, blocks [][]int) (*copying, error) {
	hashes, err := s.chunksOf(k)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	p := s.paged[instance]
	s.mu.Unlock()
	if p == nil {
		s.log.Printf("a transfer for instance %d, which is not registered", instance)
		return nil, nil
	}
	if len(blocks) != len(p.groups) {
		return nil, fmt.Errorf("block ids of %d groups: %d are registered", len(blocks), len(p.groups))
	}
	p.using.RLock()
	if p.closed {
		p.using.RUnlock()
		s.log.Printf("a transfer for instance %d, which has just been unregistered", instance)
		return nil, nil
	}
	c := &copying{paged: p, sizes: s.objectSizes(p), blocks: blocks, chunk: s.config.Chunk}
	c.keys = slices.Concat(rows(k, hashes, len(c.sizes))...)
	for i := range p.groups {
		g := &p.groups[i]
		outside := func(id int) bool { return id < 0 || id >= g.blocks() }
		if len(blocks[i])*g.tokens < len(hashes)*c.chunk || slices.ContainsFunc(blocks[i], outside) {
			s.log.Printf("request %q: block ids %v of group %d: underflow, or no block, for %d chunks in %d blocks of %d tokens", k.RequestID, blocks[i], i, len(hashes), g.blocks(), g.tokens)
			c.short = true
		}
	}
	return c, nil
}

// idsOf are the blocks of a chunk in a group.
func (c *copying) idsOf(chunk, group int) []int {
	n := c.chunk / c.paged.groups[group].tokens
	return c.blocks[group][chunk*n : (chunk+1)*n]
}

// null says whether a chunk lies in the block that means none, and nowhere
// else.
func (c *copying) null(chunk, block int) bool {
	for group := range c.paged.groups {
		for _, id := range c.idsOf(chunk, group) {
			if id != block {
				return false
			}
		}
	}
	return block >= 0
}

// move copies one object of a chunk, on a GPU with finish; skip tokens of it are left out.
func (c *copying) move(index int, object []byte, skip int, toBlocks bool) {
	chunk, part := index/len(c.sizes), index%len(c.sizes)
	first, last := 0, len(c.paged.groups)
	if len(c.sizes) > 1 {
		first, last = part, part+1
	}
	for group := first; group < last; group++ {
		g := &c.paged.groups[group]
		size := g.chunkBytes(c.chunk)
		g.eachRun(object[:size], c.idsOf(chunk, group), skip, func(v *view, at int, part []byte) { c.run(v, at, part, toBlocks) })
		object = object[size:]
	}
}

// store copies the chunks of a range that are not there yet out of the
// client's blocks. They become readable after it has answered.
func (s *Server) store(r *wire.Store) (any, error) {
	c, err := s.begin(&r.Key, r.Instance, r.Blocks)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return wire.Transfer{Event: []byte{}}, nil
	}
	defer c.paged.using.RUnlock()
	if c.short {
		return wire.Transfer{Event: []byte(stubEvent)}, nil
	}
	s.metrics.Load().submitted.Inc()
	kept, wanted, sizes := s.worthKeeping(c)
	fresh := s.objects.reserve(wanted, sizes)
	for i, x := range fresh {
		if x != nil {
			c.move(kept[i], x.place.data, 0, false)
		}
	}
	event, err := c.finish(r.Event, false)
	if err != nil {
		s.objects.abandon(fresh)
		return nil, fmt.Errorf("storing for request %q: %w", r.Key.RequestID, err)
	}
	if len(fresh) > 0 {
		s.visible.add(storeJob{salt: r.Key.Salt, keys: wanted, fresh: fresh})
	}
	s.sessionSeen(r.Key.RequestID)
	return wire.Transfer{Event: event, OK: true}, nil
}

// worthKeeping are the objects of the chunks that do not lie in the null block:
// their numbers, keys and sizes.
func (s *Server) worthKeeping(c *copying) (numbers []int, keys []objectKey, sizes []int) {
	for i, key := range c.keys {
		if !c.null(i/len(c.sizes), s.config.NullBlock) {
			numbers, keys, sizes = append(numbers, i), append(keys, key), append(sizes, c.sizes[i%len(c.sizes)])
		}
	}
	return numbers, keys, sizes
}

func (s *Server) sessionSeen(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionOf(request)
}

// retrieve copies the chunks of a range into the client's blocks, all or none,
// and releases one lock of each.
func (s *Server) retrieve(r *wire.Retrieve) (any, error) {
	c, err := s.begin(&r.Key, r.Instance, r.Blocks)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return wire.Transfer{Event: []byte{}}, nil
	}
	defer c.paged.using.RUnlock()
	if c.short || r.Skip < 0 {
		return wire.Transfer{Event: []byte(stubEvent)}, nil
	}
	m := s.metrics.Load()
	m.retrieves.Inc()
	pinned, err := s.objects.pin(c.keys)
	if err != nil {
		s.log.Printf("retrieve for request %q: %v", r.Key.RequestID, err)
		s.objects.free(c.keys, 1)
		return wire.Transfer{Event: []byte(stubEvent)}, nil
	}
	delivered := s.deliver(c.keys, pinned, false)
	for i, object := range delivered.data {
		if object != nil {
			skip := min(max(0, r.Skip-i/len(c.sizes)*c.chunk), c.chunk)
			c.move(i, object, skip, true)
		}
	}
	event, err := c.finish(r.Event, true)
	m.read(r.Key.Salt, pinned)
	s.objects.unpin(pinned, !s.has(LeakedLock))
	delivered.discard(s)
	if err != nil {
		return nil, fmt.Errorf("retrieving for request %q: %w", r.Key.RequestID, err)
	}
	return wire.Transfer{Event: event, OK: true}, nil
}
