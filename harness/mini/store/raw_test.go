package store

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

func TestFlipByte(t *testing.T) {
	s := open(t, config(8, 10))
	r := kv.Request{Tokens: prompt(10, 16), Salt: "a"}
	put(t, s, r, paged(1, 16))
	chunks := s.Chunks()
	require.Len(t, chunks, 2)

	held, _, err := s.values(s.keys(r))
	require.NoError(t, err)
	before := slices.Concat(held...)
	const value, byteOfValue = 9, 3 // in the second block of the chunk
	info, err := s.FlipByte(1, 4*value+byteOfValue)
	require.NoError(t, err)
	require.Equal(t, chunks[1], info)
	require.Equal(t, before, slices.Concat(held...), "a Load that is copying sees a chunk of one piece")
	require.Equal(t, chunks, s.Chunks(), "numbers and keys stay")

	dst := empty(16)
	require.NoError(t, s.Load(t.Context(), r, 16, dst))
	want := paged(1, 16)
	damaged := &want[info.Start/blockSize+value/blockLen][value%blockLen]
	*damaged = math.Float32frombits(math.Float32bits(*damaged) ^ 0xff000000)
	require.Equal(t, want, dst)

	_, err = s.FlipByte(1, 4*value+byteOfValue)
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context(), r, 16, dst))
	require.Equal(t, paged(1, 16), dst, "flipping twice restores")
}

func TestFlipByteRefuses(t *testing.T) {
	s := open(t, config(8, 10))
	_, err := s.FlipByte(0, 0)
	require.ErrorContains(t, err, "there are 0 chunks")
	put(t, s, kv.Request{Tokens: prompt(10, 8)}, paged(1, 8))
	for _, offset := range []int{-1, 64} {
		_, err = s.FlipByte(0, offset)
		require.ErrorContains(t, err, "it has 64 bytes")
	}
	_, err = s.FlipByte(-1, 0)
	require.ErrorContains(t, err, "chunk -1")
}
