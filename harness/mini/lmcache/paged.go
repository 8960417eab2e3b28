package lmcache

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// paged is the paged KV of one client that lets the server copy.
type paged struct {
	id       int
	model    string
	world    int
	groups   []group
	layers   []*view
	segments []*shm.Segment
	gpu      GPUMemory // nil: the layers lie in segments

	using   sync.RWMutex // read-held while somebody copies
	closed  bool
	copying sync.Mutex // of the gpu
}

// A group is layers that share block ids.
type group struct {
	layers []*view
	tokens int // in a block, as the client counts blocks
}

// openPaged maps what a client has registered.
func openPaged(r *wire.RegisterKVCache, chunk int, gpu GPU) (*paged, error) {
	p := &paged{id: r.Instance, model: r.Model, world: r.WorldSize}
	if err := p.open(r, chunk, gpu); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *paged) open(r *wire.RegisterKVCache, chunk int, gpu GPU) error {
	if r.EngineType != "vllm" {
		return fmt.Errorf("engine type %q: only vllm's tensors are read here", r.EngineType)
	}
	if len(r.Tensors) == 0 || r.WorldSize < 1 {
		return fmt.Errorf("%d tensors of a world of %d", len(r.Tensors), r.WorldSize)
	}
	device, err := onGPU(r.Tensors)
	if err != nil {
		return err
	}
	if device {
		err = p.openGPU(r, gpu)
	} else {
		err = p.openSegments(r)
	}
	if err != nil {
		return err
	}
	return p.addGroups(r.Groups, chunk)
}

// openSegments maps tensors in shared memory.
func (p *paged) openSegments(r *wire.RegisterKVCache) error {
	opened := map[string]*shm.Segment{}
	for i := range r.Tensors {
		t := &r.Tensors[i]
		if t.Kind != wire.CPUShared {
			return fmt.Errorf("layer %d lies in memory of kind %q: only shared memory and CUDA's IPC handles can be opened", i, t.Kind)
		}
		segment := opened[t.Name]
		if segment == nil {
			var err error
			if segment, err = shm.Open(t.Name, t.Bytes); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			opened[t.Name] = segment
			p.segments = append(p.segments, segment)
		}
		v, err := newView(t, r.Hints.KVLayout, len(segment.Bytes()))
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		v.bytes = segment.Bytes()
		p.layers = append(p.layers, v)
	}
	return nil
}

// addGroups takes over which layers share block ids; nothing said: all do.
func (p *paged) addGroups(groups []wire.Group, chunk int) error {
	if len(groups) == 0 {
		groups = []wire.Group{{}}
		for i := range p.layers {
			groups[0].Layers = append(groups[0].Layers, i)
		}
	}
	for _, g := range groups {
		if err := p.addGroup(g, chunk); err != nil {
			return fmt.Errorf("group %d: %w", g.ID, err)
		}
	}
	return nil
}

func (p *paged) addGroup(described wire.Group, chunk int) error {
	if len(described.Layers) == 0 {
		return errors.New("it has no layers")
	}
	g := group{tokens: described.TokensPerBlock}
	for _, layer := range described.Layers {
		if layer < 0 || layer >= len(p.layers) {
			return fmt.Errorf("layer %d: there are %d", layer, len(p.layers))
		}
		v := p.layers[layer]
		if g.tokens == 0 {
			g.tokens = v.slots
		}
		if g.tokens < 0 || g.tokens%v.slots != 0 {
			return fmt.Errorf("blocks of %d tokens, while the tensor of layer %d has blocks of %d", g.tokens, layer, v.slots)
		}
		if len(g.layers) > 0 && v.planes != g.layers[0].planes {
			return fmt.Errorf("layer %d has %d planes, others %d", layer, v.planes, g.layers[0].planes)
		}
		g.layers = append(g.layers, v)
	}
	if chunk%g.tokens != 0 {
		return fmt.Errorf("chunks of %d tokens are no whole number of its blocks of %d", chunk, g.tokens)
	}
	p.groups = append(p.groups, g)
	return nil
}

// close unmaps the memory, once nobody copies any more.
func (p *paged) close() error {
	p.using.Lock()
	defer p.using.Unlock()
	p.closed = true
	var failed []error
	for _, s := range p.segments {
		failed = append(failed, s.Close())
	}
	p.segments = nil
	if p.gpu != nil {
		failed = append(failed, p.gpu.Close())
		p.gpu = nil
	}
	return errors.Join(failed...)
}

// chunkBytes is the size of a chunk of the group.
func (g *group) chunkBytes(chunk int) int {
	size := 0
	for _, v := range g.layers {
		size += v.planes * v.tokenBytes() * chunk
	}
	return size
}

// blocks is the number of blocks that the client counts.
func (g *group) blocks() int {
	least := 0
	for i, v := range g.layers {
		if n := v.blocks * v.slots / g.tokens; i == 0 || n < least {
			least = n
		}
	}
	return least
}

// eachRun calls f for the runs of the chunk that lies in the blocks with these
// ids: where each is in its layer, and its part of object, which is
// [plane][layer][token][head][value]; the first skip tokens are left out.
func (g *group) eachRun(object []byte, ids []int, skip int, f func(v *view, at int, part []byte)) {
	tokens := len(ids) * g.tokens
	for plane := range g.layers[0].planes {
		for _, v := range g.layers {
			piece := object[:tokens*v.tokenBytes()]
			object = object[len(piece):]
			for token := skip; token < tokens; {
				inBlock := token % g.tokens
				block, slot := ids[token/g.tokens]*(g.tokens/v.slots)+inBlock/v.slots, inBlock%v.slots
				n := min(v.slots-slot, tokens-token)
				v.eachRun(piece[token*v.tokenBytes():(token+n)*v.tokenBytes()], plane, block, slot, n,
					func(at int, part []byte) { f(v, at, part) })
				token += n
			}
		}
	}
}
