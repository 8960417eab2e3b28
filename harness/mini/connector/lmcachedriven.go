package connector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// DefaultStaging is the tokens of KV that an lmcache_driven connector has room
// for at a time; longer prompts go in parts.
const DefaultStaging = 4096

// lmcacheDriven lets the server copy between its memory and blocks that both
// can see, and copies between those and the engine's, which only the engine
// can. One transfer runs at a time, as in the server.
type lmcacheDriven struct {
	*Connector
	busy   sync.Mutex
	layers []*shm.Segment // [K or V][block][token][value]
	blocks int            // without the first, which a server may take for none
}

func newLMCacheDriven(ctx context.Context, c *Connector) (transfer, error) {
	staging := c.config.Staging
	if staging == 0 {
		staging = DefaultStaging
	}
	perChunk := c.chunk / c.config.BlockSize
	l := &lmcacheDriven{Connector: c, blocks: max(1, staging/c.chunk) * perChunk}
	if err := l.register(ctx); err != nil {
		return nil, errors.Join(err, l.unmap())
	}
	return l, nil
}

func (l *lmcacheDriven) register(ctx context.Context) error {
	size, hidden, all := l.config.BlockSize, l.config.Hidden, l.blocks+1
	r := &wire.RegisterKVCache{
		Instance: l.instance, Model: l.config.Model, WorldSize: 1, EngineType: "vllm", Hints: wire.LayoutHints{KVLayout: "NHD"},
		Groups: []wire.Group{{TokensPerBlock: size}},
	}
	for layer := range l.config.Layers {
		segment, err := shm.Create(4 * 2 * all * size * hidden)
		if err != nil {
			return err
		}
		l.layers = append(l.layers, segment)
		r.Tensors = append(r.Tensors, wire.Tensor{
			Kind: wire.CPUShared, Name: segment.Name(), Bytes: len(segment.Bytes()), DType: "float32", Device: "cpu",
			Shape: []int{2, all, size, 1, hidden}, Stride: []int{all * size * hidden, size * hidden, hidden, hidden, 1},
		})
		r.Groups[0].Layers = append(r.Groups[0].Layers, layer)
	}
	if _, err := l.dealer.Call(ctx, r, nil); err != nil {
		return fmt.Errorf("%w (a server that does not offer %s does not answer)", err, LMCacheDriven)
	}
	return nil
}

// parts calls f for each part of the key's range that fits into the blocks,
// with the ids of its blocks and the number of its first block in the prompt.
func (l *lmcacheDriven) parts(k wire.Key, f func(part wire.Key, ids []int, first int) error) error {
	l.busy.Lock()
	defer l.busy.Unlock()
	size := l.config.BlockSize
	for start := k.Start; start < k.End; start += l.blocks * size {
		part := k
		part.Start, part.End = start, min(k.End, start+l.blocks*size)
		ids := make([]int, (part.End-part.Start)/size)
		for i := range ids {
			ids[i] = 1 + i
		}
		if err := f(part, ids, start/size); err != nil {
			return err
		}
	}
	return nil
}

func (l *lmcacheDriven) load(ctx context.Context, k wire.Key, dst [][]float32) error {
	return l.parts(k, func(part wire.Key, ids []int, first int) error {
		var done wire.Transfer
		if _, err := l.dealer.Call(ctx, &wire.Retrieve{Key: part, Instance: l.instance, Blocks: [][]int{ids}}, &done); err != nil {
			return err
		}
		if !done.OK {
			return errors.New("a chunk is not stored, or was evicted since it was looked up")
		}
		return l.copyBlocks(ids, first, dst, true)
	})
}

func (l *lmcacheDriven) store(ctx context.Context, k wire.Key, src [][]float32) error {
	return l.parts(k, func(part wire.Key, ids []int, first int) error {
		if err := l.copyBlocks(ids, first, src, false); err != nil {
			return err
		}
		var done wire.Transfer
		if _, err := l.dealer.Call(ctx, &wire.Store{Key: part, Instance: l.instance, Blocks: [][]int{ids}}, &done); err != nil {
			return err
		}
		if !done.OK {
			return fmt.Errorf("the server did not take %d blocks", len(ids))
		}
		return nil
	})
}

// copyBlocks copies between the blocks with these ids and those of a prompt
// from number first on. Blocks beyond its last and those that are nil are left
// out.
func (l *lmcacheDriven) copyBlocks(ids []int, first int, prompt [][]float32, toPrompt bool) error {
	run := l.config.BlockSize * l.config.Hidden
	for i, id := range ids {
		if first+i >= len(prompt) || prompt[first+i] == nil {
			continue
		}
		block := prompt[first+i]
		if len(block) != l.blockLen() {
			return fmt.Errorf("block %d has %d values, want %d", first+i, len(block), l.blockLen())
		}
		for layer, segment := range l.layers {
			for plane := range 2 {
				at := 4 * (plane*(l.blocks+1) + id) * run
				values, shared := raw(block[(layer*2+plane)*run:][:run]), segment.Bytes()[at:at+4*run]
				if toPrompt {
					copy(values, shared)
				} else {
					copy(shared, values)
				}
			}
		}
	}
	return nil
}

func (l *lmcacheDriven) close(ctx context.Context) error {
	_, err := l.dealer.Call(ctx, &wire.UnregisterKVCache{Instance: l.instance}, nil)
	return errors.Join(err, l.unmap())
}

func (l *lmcacheDriven) unmap() error {
	var failed []error
	for _, s := range l.layers {
		failed = append(failed, s.Close())
	}
	return errors.Join(failed...)
}
