package daser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// TestPrefixLaw: whole blocks, from the start, never the last token; and the
// answer is that of a recompute.
func TestPrefixLaw(t *testing.T) {
	s := newStack(t, Prefix)
	for i, n := range []int{1, size - 1, size, size + 1, 2*size - 1, 2 * size, 2*size + 1, 5*size + 7} {
		t.Run(fmt.Sprintf("P=%d", n), func(t *testing.T) {
			ids := tokens(i, n)
			cold := s.complete(t, ids, nil)
			s.drain(t)
			warm := s.complete(t, ids, nil)
			require.Zero(t, cold.cached)
			require.Equal(t, min(n/size*size, n-1), warm.cached)
			requireSame(t, cold, warm)
		})
	}
}

// TestPrefixStopsAtTheFirstDifference: a chained key names all that came
// before, so equal blocks behind different ones are no hit.
func TestPrefixStopsAtTheFirstDifference(t *testing.T) {
	s := newStack(t, Prefix)
	ids := tokens(1, 5*size+3)
	s.complete(t, ids, nil)
	s.drain(t)
	for _, at := range []int{0, size - 1, size, 3*size + 1, 5 * size} {
		other := slices.Clone(ids)
		other[at]++
		require.Equal(t, at/size*size, s.complete(t, other, object{"kv_transfer_params": object{"daser_skip_save": true}}).cached, "token %d differs", at)
	}
	require.Zero(t, s.complete(t, ids, object{"cache_salt": "x"}).cached, "another salt")
}

// TestPrefixStopsAtAMissingBlock: what lies behind a gap is not used.
func TestPrefixStopsAtAMissingBlock(t *testing.T) {
	s := newStack(t, Prefix)
	ids := tokens(1, 4*size+1)
	s.complete(t, ids, nil)
	s.drain(t)
	keys := blockKeys(nano().Fingerprint(), request("x", ids), size)
	require.Equal(t, 1, s.store.Evict(keys[2]))
	require.Equal(t, 2*size, s.complete(t, ids, nil).cached)
	s.drain(t)
	require.Equal(t, 4*size, s.complete(t, ids, nil).cached, "the gap was filled")
}

// TestChunkLaw: whole documents, one behind the other, from the start. Blocks
// is the length of each document of the prompt in blocks; a negative one is
// not stored.
func TestChunkLaw(t *testing.T) {
	for _, test := range []struct {
		name   string
		blocks []int
		task   int
		want   int
	}{
		{"one document and a task", []int{3}, 5, 3 * size},
		{"a full hit is one token short", []int{3}, 0, 3*size - 1},
		{"a full hit of two", []int{1, 2}, 0, 3*size - 1},
		{"a task of a block", []int{1}, size, size},
		{"three documents", []int{1, 4, 2}, 1, 7 * size},
		{"stops at what is missing", []int{2, -1, 3}, 5, 2 * size},
		{"nothing at the start", []int{-1, 3}, 5, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStack(t, Chunk)
			var prompt []int32
			for i, n := range test.blocks {
				document := tokens(i+1, max(n, -n)*size)
				prompt = append(prompt, document...)
				if n > 0 {
					s.upload(t, document)
				}
			}
			prompt = append(prompt, tokens(99, test.task)...)
			skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
			require.Equal(t, test.want, s.complete(t, prompt, skip).cached)
		})
	}
}

// TestChunkIsTheWholeDocument: half a document is no hit, and of two that
// begin alike the longer one is taken where it fits.
func TestChunkIsTheWholeDocument(t *testing.T) {
	s := newStack(t, Chunk)
	long := tokens(1, 4*size)
	s.upload(t, long)
	skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
	require.Zero(t, s.complete(t, append(slices.Clone(long[:3*size]), 9, 9), skip).cached)
	s.upload(t, long[:2*size])
	require.Equal(t, 2*size, s.complete(t, append(slices.Clone(long[:3*size]), 9, 9), skip).cached)
	require.Equal(t, 4*size, s.complete(t, append(slices.Clone(long), 9, 9), skip).cached)
	require.Zero(t, s.complete(t, append(slices.Clone(long), 9, 9), object{"cache_salt": "x"}).cached, "another salt")
}

// TestChunkKey: the canonical bytes of xxh3-128, as hexdigest prints them.
func TestChunkKey(t *testing.T) {
	require.Equal(t, "99aa06d3014798d86001c324468d497f", chunkKey(nil, "").String(), "the published digest of nothing")
	require.Equal(t, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0xfe, 0xff, 0xff, 0xff}, littleEndian([]int32{1, 1<<31 - 1, -2}))
	seen := map[tier.Key]bool{}
	for _, key := range []tier.Key{
		chunkKey(littleEndian([]int32{1, 2}), ""), chunkKey(littleEndian([]int32{2, 1}), ""),
		chunkKey(littleEndian([]int32{1, 2}), "a"), chunkKey(littleEndian([]int32{1, 2}), "b"),
	} {
		require.False(t, seen[key])
		seen[key] = true
	}
}

func TestStoreRefuses(t *testing.T) {
	slot := int64(4 * nano().BlockLen(size))
	good := StoreConfig{Mode: Chunk, Model: nano(), BlockSize: size, Tiers: tier.Config{L1Bytes: slot}}
	for name, test := range map[string]struct {
		change func(*StoreConfig)
		want   string
	}{
		"mode":      {func(c *StoreConfig) { c.Mode = "both" }, `cache reuse mode "both"`},
		"model":     {func(c *StoreConfig) { c.Model = nil }, "no model"},
		"block":     {func(c *StoreConfig) { c.BlockSize = 0 }, "block size 0"},
		"slot":      {func(c *StoreConfig) { c.Tiers.L1Bytes-- }, "a slot of 16 tokens takes"},
		"L1 and L2": {func(c *StoreConfig) { c.Tiers.L2Dir, c.Tiers.L2Bytes = t.TempDir(), slot-1 }, "larger than L2"},
		"L2":        {func(c *StoreConfig) { c.Tiers.L2Bytes = slot }, "without a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			test.change(&c)
			_, err := NewStore(c)
			require.ErrorContains(t, err, test.want)
		})
	}
	s, err := NewStore(good)
	require.NoError(t, err)
	require.ErrorIs(t, s.Reset(t.Context()), ErrNoReset)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "again")
	_, err = s.Lookup(t.Context(), request("x", tokens(1, 20)))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Store(t.Context(), request("x", tokens(1, 3)), make([][]float32, 1)), ErrClosed)
}
