package daser

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// Load copies the chunks that hold the first tokens tokens of r into dst, as
// far as dst reaches, and turns the keys of documents to their positions.
// Blocks of dst that are nil are left out. A chunk that was evicted since it
// was looked up is an error.
func (s *Store) Load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("loading %d tokens of request %s: %w", tokens, r.ID, err)
	}
	if want := (tokens + s.cfg.BlockSize - 1) / s.cfg.BlockSize; tokens < 1 || len(dst) < want {
		return fmt.Errorf("loading %d tokens of request %s into %d blocks of %d: %d are needed", tokens, r.ID, len(dst), s.cfg.BlockSize, want)
	}
	for i, block := range dst {
		if want := s.cfg.Model.BlockLen(s.cfg.BlockSize); block != nil && len(block) != want {
			return fmt.Errorf("loading block %d of request %s: it holds %d values, want %d", i, r.ID, len(block), want)
		}
	}
	s.addLoad(1)
	defer s.addLoad(-1)
	start := time.Now()
	moved, err := s.load(ctx, r, tokens, dst)
	s.metrics.transferred(opLoad, err == nil, moved, time.Since(start))
	if err != nil {
		return fmt.Errorf("loading %d tokens of request %s: %w", tokens, r.ID, err)
	}
	return nil
}

// delivered is the context key under which a caller of Load may leave a *[]Hit,
// to learn which chunks it got: a later lookup may see others.
type delivered struct{}

func (s *Store) addLoad(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads += n
	s.broadcast()
}

// load returns how many bytes it has moved. The last chunk comes first, as in
// a store: so those at the start are the more recently used ones.
func (s *Store) load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) (moved int, err error) {
	hits, err := s.Hits(r)
	if err != nil {
		return 0, err
	}
	if covered(hits) < tokens {
		return 0, fmt.Errorf("%d tokens are stored, or the others were evicted since they were looked up", covered(hits))
	}
	hits = hits[:1+slices.IndexFunc(hits, func(h Hit) bool { return h.Offset+h.Tokens >= tokens })]
	s.markLossy(r, hits)
	if into, ok := ctx.Value(delivered{}).(*[]Hit); ok {
		*into = hits
	}
	for i, h := range slices.Backward(hits) {
		values, err := s.get(h)
		if err != nil {
			return moved, err
		}
		if i == len(hits)-1 {
			values = s.exchange(h, values)
		}
		n := s.deliver(h, values, dst)
		s.metrics.chunkMoved(opLoad, n)
		moved += n
	}
	return moved, nil
}

// markLossy remembers that r runs on documents that were moved, so that its
// own KV is not published. A request whose whole blocks were all found has
// nothing to publish.
func (s *Store) markLossy(r kv.Request, hits []Hit) {
	whole := len(r.Tokens) / s.cfg.BlockSize * s.cfg.BlockSize
	if r.SkipSave || hits[len(hits)-1].Moved == 0 || covered(hits) >= whole {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossy[r.ID] = true
}

// get returns the values of a chunk; zeros where a fault has made it visible
// without any.
func (s *Store) get(h Hit) ([]float32, error) {
	values, from, err := s.objects.Get(h.Key)
	switch {
	case err != nil:
		return nil, err
	case values == nil && s.withoutBytes():
		return make([]float32, h.Tokens/s.cfg.BlockSize*s.cfg.Model.BlockLen(s.cfg.BlockSize)), nil
	case values == nil:
		return nil, fmt.Errorf("the chunk at %d was evicted since it was looked up", h.Offset)
	}
	s.metrics.loaded(from, 4*len(values))
	return values, nil
}

// deliver copies a chunk to its blocks and returns how many bytes.
func (s *Store) deliver(h Hit, values []float32, dst [][]float32) (bytes int) {
	size, length := s.cfg.BlockSize, s.cfg.Model.BlockLen(s.cfg.BlockSize)
	for i := range h.Tokens / size {
		at := h.Offset/size + i
		if at >= len(dst) || dst[at] == nil {
			continue
		}
		bytes += 4 * copy(dst[at], values[i*length:])
		s.cfg.Model.RotateKeys(size, dst[at], size, h.Moved)
	}
	return bytes
}

// exchange puts another chunk's KV in the place of all (OtherDocument) or the
// second half (PartialChunk) of one that is loaded. Without another chunk it
// stays whole.
func (s *Store) exchange(h Hit, values []float32) []float32 {
	first := 0
	switch {
	case s.cfg.Planted(fault.OtherDocument):
	case s.cfg.Planted(fault.PartialChunk):
		first = h.Tokens / 2
	default:
		return values
	}
	other, tokens := s.another(h.Key)
	if tokens == 0 {
		return values
	}
	values = slices.Clone(values)
	size, length := s.cfg.BlockSize, s.cfg.Model.BlockLen(s.cfg.BlockSize)
	for token := first; token < h.Tokens; token++ {
		there := token % tokens
		for layer := range s.cfg.Model.Config().Layers {
			for _, plane := range []model.Plane{model.Keys, model.Values} {
				to, _ := s.cfg.Model.Span(size, layer, plane, token%size)
				from, end := s.cfg.Model.Span(size, layer, plane, there%size)
				from, end = from+there/size*length, end+there/size*length
				copy(values[to+token/size*length:], other[from:end])
			}
		}
	}
	return values
}

// another is the longest of the other chunks that have bytes, the latest of
// those.
func (s *Store) another(than tier.Key) (values []float32, tokens int) {
	s.mu.Lock()
	var best chunk
	for key, c := range s.committed {
		if key != than && s.objects.Where(key) != tier.None &&
			(c.tokens > best.tokens || c.tokens == best.tokens && c.slot > best.slot) {
			best = c
		}
	}
	s.mu.Unlock()
	values, _, err := s.objects.Get(best.key)
	if err != nil || values == nil {
		return nil, 0
	}
	return values, best.tokens
}
