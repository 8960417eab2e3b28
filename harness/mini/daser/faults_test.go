package daser

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A scene is a document that was asked about without and with the cache.
type scene struct {
	cold, warm outcome
	report     Report
}

// play uploads three documents under faults and asks about the last one.
func play(t *testing.T, s *stack, faults ...fault.Fault) scene {
	t.Helper()
	s.check.Switch(true)
	require.NoError(t, s.injector.Plant(faults...))
	var ids []string
	for i := range 3 {
		ids = append(ids, s.upload(t, tokens(i+1, 2*size)))
	}
	s.drain(t)
	task := tokens(9, 5)
	return scene{
		cold: s.infer(t, task, false, ids[2]), warm: s.infer(t, task, true, ids[2]), report: s.check.Report(),
	}
}

// TestDamageInChunks: one document that is not moved is exact on a healthy
// stack, so here the output shows what the check says.
func TestDamageInChunks(t *testing.T) {
	for _, f := range []fault.Fault{fault.PartialChunk, fault.OtherDocument, fault.EarlyAck} {
		t.Run(string(f), func(t *testing.T) {
			got := play(t, newStack(t, Chunk), f)
			require.Equal(t, 2*size, got.warm.cached, "a hit like any other")
			require.NotEqual(t, got.cold.logprobs, got.warm.logprobs)
			require.Equal(t, 1, got.report.Damaged)
			first := got.report.Mismatches[0].Token
			require.Equal(t, map[fault.Fault]int{fault.PartialChunk: size, fault.OtherDocument: 0, fault.EarlyAck: 0}[f], first)
			require.Contains(t, f.Findings(), "kv-differs")
		})
	}
	t.Run("none", func(t *testing.T) {
		got := play(t, newStack(t, Chunk))
		require.Equal(t, 2*size, got.warm.cached)
		requireSame(t, got.cold, got.warm)
		require.Zero(t, got.report.Damaged)
		require.Equal(t, 1, got.report.Chunks)
	})
}

// TestDamageInPrefixes: the same in the row whose outputs are exact.
func TestDamageInPrefixes(t *testing.T) {
	for _, f := range []fault.Fault{fault.PartialChunk, fault.OtherDocument, fault.EarlyAck} {
		t.Run(string(f), func(t *testing.T) {
			s := newStack(t, Prefix)
			require.NoError(t, s.injector.Plant(f))
			s.complete(t, tokens(1, 2*size+5), nil)
			cold := s.complete(t, tokens(2, 2*size+5), nil)
			s.drain(t)
			warm := s.complete(t, tokens(2, 2*size+5), nil)
			require.Equal(t, 2*size, warm.cached)
			require.NotEqual(t, cold.logprobs, warm.logprobs)
			s.injector.Clear()
			s.complete(t, tokens(3, size), nil) // and with it what was held back
			s.drain(t)
			requireSame(t, cold, s.complete(t, tokens(2, 2*size+5), nil))
		})
	}
}

// TestEvictionAsHit: evicted by capacity or on demand, still found, and zero.
func TestEvictionAsHit(t *testing.T) {
	document := int64(4 * 2 * nano().BlockLen(size))
	t.Run("capacity", func(t *testing.T) {
		s := newStack(t, Chunk, func(p *plan) { p.tiers = tier.Config{L1Bytes: 2 * document} })
		s.check.Switch(true)
		require.NoError(t, s.injector.Plant(fault.EvictionAsHit))
		id := s.upload(t, tokens(1, 2*size))
		s.upload(t, tokens(2, 2*size))
		s.upload(t, tokens(3, 2*size))
		cold, warm := s.infer(t, tokens(9, 5), false, id), s.infer(t, tokens(9, 5), true, id)
		require.Equal(t, 2*size, warm.cached)
		require.NotEqual(t, cold.logprobs, warm.logprobs)
		require.Equal(t, 1, s.check.Report().Damaged)
		s.injector.Clear()
		again := s.infer(t, tokens(9, 5), true, id)
		require.Zero(t, again.cached)
		requireSame(t, cold, again)
	})
	t.Run("on demand", func(t *testing.T) {
		s := newStack(t, Chunk)
		require.NoError(t, s.injector.Plant(fault.EvictionAsHit))
		id := s.upload(t, tokens(1, 2*size))
		s.do(t, http.MethodDelete, "/documents/"+id, nil, nil)
		skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
		prompt := append(tokens(1, 2*size), 9)
		require.Equal(t, 2*size, s.complete(t, prompt, skip).cached, "deleted and not cold")
		s.injector.Clear()
		require.Zero(t, s.complete(t, prompt, skip).cached)
	})
}

// TestEarlyDrain: drained, and the last prompt misses. A healthy drain after
// it waits.
func TestEarlyDrain(t *testing.T) {
	s := newStack(t, Prefix)
	require.NoError(t, s.injector.Plant(fault.EarlyDrain))
	s.complete(t, tokens(1, 2*size+5), nil)
	s.complete(t, tokens(2, 2*size+5), nil)
	s.drain(t)
	skip := object{"kv_transfer_params": object{"daser_skip_save": true}}
	require.Zero(t, s.complete(t, tokens(2, 2*size+5), skip).cached)
	s.injector.Clear()
	s.drain(t)
	require.Equal(t, 2*size, s.complete(t, tokens(1, 2*size+5), skip).cached)
	require.Equal(t, 2*size, s.complete(t, tokens(2, 2*size+5), skip).cached)
	require.Equal(t, []string{"hit-below-oracle"}, fault.EarlyDrain.Findings())

	// An upload waits for its own commit, drain or not.
	chunks := newStack(t, Chunk)
	require.NoError(t, chunks.injector.Plant(fault.EarlyDrain))
	id := chunks.upload(t, tokens(1, 2*size))
	require.Equal(t, 2*size, chunks.infer(t, []int32{9}, true, id).cached)
}

// TestFaultsOfTheStore: those between engine and store act here as well.
func TestFaultsOfTheStore(t *testing.T) {
	for _, f := range []fault.Fault{fault.BitFlip, fault.ZeroBlock, fault.TokensPermuted, fault.NaN, fault.SwappedBlocks, fault.HitPlusOneBlock} {
		t.Run(string(f), func(t *testing.T) {
			s := newStack(t, Chunk)
			s.check.Switch(true)
			ids := []string{s.upload(t, tokens(1, 2*size)), s.upload(t, tokens(2, 3*size))}
			require.NoError(t, s.injector.Plant(f))
			s.inferBody(t, object{"doc_ids": ids, "task_token_ids": tokens(3, 2*size)})
			require.Positive(t, s.check.Report().Damaged)
		})
	}
	t.Run("lost-store", func(t *testing.T) {
		s := newStack(t, Prefix)
		require.NoError(t, s.injector.Plant(fault.LostStore))
		s.complete(t, tokens(1, 2*size), nil)
		s.drain(t)
		require.Zero(t, s.complete(t, tokens(1, 2*size), nil).cached)
	})
}
