package daser

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A Hit is a stored chunk at its place in a prompt.
type Hit struct {
	Key    tier.Key
	Offset int // of its first token in the prompt
	Tokens int
	Slot   int // the first of its slots
	Moved  int // positions between where it was computed and Offset
}

// Lookup returns how many leading tokens of r are stored, without a gap. It
// counts all tokens of r as asked for.
func (s *Store) Lookup(ctx context.Context, r kv.Request) (int, error) {
	hits, err := s.Trace(ctx, r)
	if err != nil {
		return 0, err
	}
	found := covered(hits)
	// DaseR's connector reports what it will take: never the last token.
	s.metrics.external(len(r.Tokens), min(found, len(r.Tokens)-1))
	for _, h := range hits {
		s.metrics.hitTokens(s.objects.Where(h.Key), h.Tokens)
	}
	return found, nil
}

// Trace is a lookup that loads nothing, as /infer with trace_cache does it. It
// counts like any other.
func (s *Store) Trace(ctx context.Context, r kv.Request) ([]Hit, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("looking up request %s: %w", r.ID, err)
	}
	hits, err := s.Hits(r)
	if err != nil {
		return nil, fmt.Errorf("looking up request %s: %w", r.ID, err)
	}
	s.metrics.lookup(len(r.Tokens), covered(hits))
	return hits, nil
}

// Hits returns the chunks with which r begins, one behind the other. It counts
// and touches nothing.
func (s *Store) Hits(r kv.Request) ([]Hit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.cfg.Mode == Chunk {
		return s.documents(r), nil
	}
	return s.prefix(r), nil
}

func covered(hits []Hit) int {
	if len(hits) == 0 {
		return 0
	}
	last := hits[len(hits)-1]
	return last.Offset + last.Tokens
}

// prefix walks the chain of blocks to the first that is missing. s.mu is held.
func (s *Store) prefix(r kv.Request) []Hit {
	var hits []Hit
	for i, key := range blockKeys(s.cfg.Model.Fingerprint(), r, s.cfg.BlockSize) {
		if !s.visible(key) {
			break
		}
		hits = append(hits, Hit{Key: key, Offset: i * s.cfg.BlockSize, Tokens: s.cfg.BlockSize, Slot: s.committed[key].slot})
	}
	return hits
}

// documents walks whole documents from the start. Where several begin at one
// place, the longest is taken. s.mu is held.
func (s *Store) documents(r kv.Request) []Hit {
	bytes, lengths := littleEndian(r.Tokens), s.lengths()
	var hits []Hit
	for at := 0; ; {
		i := slices.IndexFunc(lengths, func(n int) bool {
			return at+n <= len(r.Tokens) && s.visible(chunkKey(bytes[4*at:4*(at+n)], r.Salt))
		})
		if i < 0 {
			return hits
		}
		n := lengths[i]
		key := chunkKey(bytes[4*at:4*(at+n)], r.Salt)
		hits = append(hits, Hit{Key: key, Offset: at, Tokens: n, Slot: s.committed[key].slot, Moved: at})
		at += n
	}
}

// lengths are the lengths of all documents, the longest first. s.mu is held.
func (s *Store) lengths() []int {
	seen := map[int]bool{}
	var lengths []int
	for _, c := range s.committed {
		if !seen[c.tokens] {
			seen[c.tokens] = true
			lengths = append(lengths, c.tokens)
		}
	}
	slices.Sort(lengths)
	slices.Reverse(lengths)
	return lengths
}
