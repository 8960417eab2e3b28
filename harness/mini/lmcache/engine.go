package lmcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// An engine is a client that copies from and to the pool by itself.
type engine struct {
	context wire.EngineContext
	shape   []int // of a slot
	bytes   int   // of a slot
}

// A transferKey joins the two halves of a transfer: both must name the same
// instance and the same key.
type transferKey struct {
	instance int
	key      string
}

func newTransferKey(instance int, k *wire.Key) transferKey {
	tokens := make([]byte, 0, 4*len(k.Tokens))
	for _, t := range k.Tokens {
		tokens = append(tokens, byte(t>>24), byte(t>>16), byte(t>>8), byte(t))
	}
	return transferKey{instance, fmt.Sprintf("%q %q %q %d %d %d %d %x", k.Model, k.RequestID, k.Salt, k.WorldSize, k.Worker, k.Start, k.End, blake3.Sum256(tokens))}
}

// A pendingWrite is places that a client has been given to write to.
type pendingWrite struct{ storeJob }

// A pendingRead is places that a client has been given to read.
type pendingRead struct {
	pinned    []*object
	delivered *delivery
	salt      string
}

// registerEngine tells a client where the pool is.
func (s *Server) registerEngine(c *wire.EngineContext) (any, error) {
	if !s.config.offers(EngineDriven) {
		return nil, fmt.Errorf("no handler is registered for operation %s: this server is %s only", wire.OpRegisterEngineDriven, s.config.Transfer)
	}
	size, known := elementBytes[c.DType]
	if !known {
		return nil, fmt.Errorf("invalid dtype_str %q: known are float16, bfloat16, float32 and uint8", c.DType)
	}
	slots := c.Slots
	if slots == 0 {
		slots = s.config.Chunk
	}
	const most = 1 << 20
	for _, n := range []int{c.Layers, c.Hidden, slots} {
		if n < 1 || n > most {
			return nil, fmt.Errorf("%d layers of %d values in %d slots: each must be from 1 to %d", c.Layers, c.Hidden, slots, most)
		}
	}
	if c.WorldSize < 1 {
		return nil, fmt.Errorf("a world of %d", c.WorldSize)
	}
	e := &engine{context: *c, shape: []int{c.Layers, slots, c.Hidden}}
	if s.dialect.Version == "0.4.7" && c.BlockSize > 0 && slots%c.BlockSize == 0 {
		e.shape = []int{c.Layers, slots / c.BlockSize, c.BlockSize * c.Hidden}
	}
	if !c.MLA {
		e.shape = slices.Insert(e.shape, 0, 2)
	}
	e.bytes = size
	for _, n := range e.shape {
		if e.bytes *= n; e.bytes > len(s.objects.memory.bytes) {
			return nil, fmt.Errorf("a chunk of shape %v of %s does not fit into a pool of %d bytes", e.shape, c.DType, len(s.objects.memory.bytes))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engines[c.Instance] == nil { // again: it is only told once more
		s.engines[c.Instance] = e
		s.addLayout(c.Model, c.WorldSize, []int{e.bytes})
	}
	return wire.Pool{Name: s.poolName(), Size: len(s.objects.memory.bytes)}, nil
}

// unregisterEngine forgets a client and gives back what it was about to write
// and to read.
func (s *Server) unregisterEngine(instance int) {
	s.mu.Lock()
	e := s.engines[instance]
	delete(s.engines, instance)
	var writes []*pendingWrite
	var reads []*pendingRead
	if e != nil {
		s.dropLayout(e.context.Model, e.context.WorldSize)
		for k, w := range s.writes {
			if k.instance == instance {
				writes = append(writes, w)
				delete(s.writes, k)
			}
		}
		for k, r := range s.reads {
			if k.instance == instance {
				reads = append(reads, r...)
				delete(s.reads, k)
			}
		}
	}
	s.mu.Unlock()
	for _, w := range writes {
		s.objects.abandon(w.fresh)
	}
	for _, r := range reads {
		s.endRead(r, true)
	}
}

// engineOf is who asks for a transfer, and the objects that it is about.
func (s *Server) engineOf(k *wire.Key, instance int) (*engine, []objectKey, error) {
	hashes, err := s.chunksOf(k)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	e := s.engines[instance]
	s.mu.Unlock()
	if e == nil {
		return nil, nil, fmt.Errorf("instance %d is not registered as engine-driven", instance)
	}
	return e, slices.Concat(rows(k, hashes, 1)...), nil
}

func (e *engine) slot(offset int) wire.Slot {
	return wire.Slot{Offset: offset, Length: e.bytes, Shape: e.shape, DType: e.context.DType}
}

// prepareStore reserves places for the chunks that are missing.
func (s *Server) prepareStore(r *wire.PrepareStore) (any, error) {
	e, keys, err := s.engineOf(&r.Key, r.Instance)
	if err != nil {
		return nil, err
	}
	sizes := slices.Repeat([]int{e.bytes}, len(keys))
	fresh := s.objects.reserve(keys, sizes)
	var reply wire.PreparedStore
	reply.Context.Slots, reply.Context.Chunks = []wire.Slot{}, []int{}
	for i, x := range fresh {
		if x != nil {
			reply.Context.Slots = append(reply.Context.Slots, e.slot(x.place.from))
			reply.Context.Chunks = append(reply.Context.Chunks, i)
		}
	}
	s.sessionSeen(r.Key.RequestID)
	if len(reply.Context.Slots) == 0 {
		s.objects.use(keys)
		return reply, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := newTransferKey(r.Instance, &r.Key)
	if earlier := s.writes[k]; earlier != nil { // its objects are still reserved for it
		for i, x := range earlier.fresh {
			if fresh[i] == nil {
				fresh[i] = x
			}
		}
	}
	s.writes[k] = &pendingWrite{storeJob{salt: r.Key.Salt, keys: keys, fresh: fresh}}
	return reply, nil
}

// commitStore makes them readable at once.
func (s *Server) commitStore(r *wire.CommitStore) (any, error) {
	if _, _, err := s.engineOf(&r.Key, r.Instance); err != nil {
		return nil, err
	}
	if len(r.Data) > 0 {
		return nil, errors.New("the chunks came with the message: this server has a pool, pickled ones are not read")
	}
	s.mu.Lock()
	k := newTransferKey(r.Instance, &r.Key)
	w := s.writes[k]
	delete(s.writes, k)
	s.mu.Unlock()
	if w == nil {
		return false, nil
	}
	return s.publish(w.storeJob), nil
}

// prepareRetrieve says where the chunks of a range are, or that one is missing.
func (s *Server) prepareRetrieve(r *wire.PrepareRetrieve) (any, error) {
	e, keys, err := s.engineOf(&r.Key, r.Instance)
	if err != nil {
		return nil, err
	}
	reply := wire.PreparedRetrieve{Data: []byte{}}
	reply.Context.Slots = []wire.Slot{}
	pinned, err := s.objects.pin(keys)
	if err != nil {
		s.log.Printf("retrieve for request %q: %v", r.Key.RequestID, err)
		s.objects.free(keys, 1)
		return reply, nil
	}
	for _, x := range pinned {
		if len(x.place.data) != e.bytes {
			s.objects.unpin(pinned, true)
			return nil, fmt.Errorf("chunk %s has %d bytes, while instance %d has chunks of %d", x.key, len(x.place.data), r.Instance, e.bytes)
		}
	}
	read := &pendingRead{pinned, s.deliver(keys, pinned, true), r.Key.Salt}
	reply.Success = true
	for _, offset := range read.delivered.offsets {
		reply.Context.Slots = append(reply.Context.Slots, e.slot(offset))
	}
	s.metrics.Load().retrieves.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := newTransferKey(r.Instance, &r.Key)
	s.reads[k] = append(s.reads[k], read)
	return reply, nil
}

// commitRetrieve ends the oldest read of that key. It is always true.
func (s *Server) commitRetrieve(r *wire.CommitRetrieve) (any, error) {
	if _, _, err := s.engineOf(&r.Key, r.Instance); err != nil {
		return nil, err
	}
	s.mu.Lock()
	k := newTransferKey(r.Instance, &r.Key)
	pending := s.reads[k]
	if len(pending) > 1 {
		s.reads[k] = pending[1:]
	} else {
		delete(s.reads, k)
	}
	s.mu.Unlock()
	if len(pending) > 0 {
		s.metrics.Load().read(pending[0].salt, pending[0].pinned)
		s.endRead(pending[0], !s.has(LeakedLock))
	}
	return true, nil
}

func (s *Server) endRead(r *pendingRead, release bool) {
	s.objects.unpin(r.pinned, release)
	r.delivered.discard(s)
}
