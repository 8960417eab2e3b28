package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// Lookup returns how many leading tokens of r are stored, in whole chunks, and
// counts floor(P/C)*C tokens as asked for and those that it found by the tier
// that has them now. What it found becomes the most recently used; it is not
// locked, so a store that is far too small can lose it before Load, which then
// says so.
func (s *Store) Lookup(ctx context.Context, r kv.Request) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("looking up request %s: %w", r.ID, err)
	}
	keys := s.keys(r)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, fmt.Errorf("looking up request %s: %w", r.ID, ErrClosed)
	}
	found, inL1 := 0, 0
	for found < len(keys) {
		where := s.objects.Where(keys[found])
		if where == tier.None {
			break
		}
		if where == tier.L1 {
			inL1++
		}
		found++
	}
	s.objects.Touch(keys[:found]...)
	s.mu.Unlock()

	s.metrics.lookup(r.Salt, len(keys)*s.cfg.Chunk, inL1*s.cfg.Chunk, (found-inL1)*s.cfg.Chunk)
	return found * s.cfg.Chunk, nil
}

// Load copies the chunks that hold the first tokens tokens of r into dst, each
// one whole as far as dst reaches. Blocks of dst that are nil are left out.
func (s *Store) Load(ctx context.Context, r kv.Request, tokens int, dst [][]float32) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("loading %d tokens of request %s: %w", tokens, r.ID, err)
	}
	need := (tokens + s.cfg.Chunk - 1) / s.cfg.Chunk
	keys := s.keys(r)
	if tokens <= 0 || need > len(keys) {
		return fmt.Errorf("loading %d tokens of request %s: its prompt of %d tokens has %d whole chunks of %d", tokens, r.ID, len(r.Tokens), len(keys), s.cfg.Chunk)
	}
	if want := (tokens + s.cfg.BlockSize - 1) / s.cfg.BlockSize; len(dst) < want {
		return fmt.Errorf("loading %d tokens of request %s into %d blocks of %d: %d are needed", tokens, r.ID, len(dst), s.cfg.BlockSize, want)
	}
	found, from, err := s.values(keys[:need])
	if err != nil {
		return fmt.Errorf("loading %d tokens of request %s: %w", tokens, r.ID, err)
	}
	var moved [tier.L2 + 1]int // values, by tier
	for i, values := range found {
		for b := range s.blocks {
			to := i*s.blocks + b
			if to >= len(dst) || dst[to] == nil {
				continue
			}
			if len(dst[to]) != s.cfg.BlockLen {
				return fmt.Errorf("loading block %d of request %s: it holds %d values, want %d", to, r.ID, len(dst[to]), s.cfg.BlockLen)
			}
			moved[from[i]] += copy(dst[to], values[b*s.cfg.BlockLen:])
		}
	}
	for i := range found {
		s.metrics.read(r.Salt, from[i])
	}
	s.metrics.loaded(tier.L1, 4*moved[tier.L1])
	s.metrics.loaded(tier.L2, 4*moved[tier.L2])
	return nil
}

// values returns the stored values of keys, which must all be there, and the
// tiers that they came from.
func (s *Store) values(keys []key) (found [][]float32, from []tier.Tier, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	for i, k := range keys {
		if s.objects.Where(k) == tier.None {
			return nil, nil, fmt.Errorf("chunk %d is not stored, or was evicted since it was looked up", i)
		}
	}
	found, from = make([][]float32, len(keys)), make([]tier.Tier, len(keys))
	for i, k := range slices.Backward(keys) { // the first becomes the most recently used
		if found[i], from[i], err = s.objects.Get(k); err != nil {
			return nil, nil, fmt.Errorf("chunk %d: %w", i, err)
		}
	}
	return found, from, nil
}
