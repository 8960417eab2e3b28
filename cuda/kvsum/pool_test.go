package kvsum

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFillVector(t *testing.T) {
	unit := make([]byte, 13)
	Fill(unit, 3, 99)
	require.Equal(t, "7ec1e4c8b76d4f1678543679f3", hex.EncodeToString(unit))
}

func TestFilledSumNeedsNoBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		unit := make([]byte, r.IntN(200))
		u, fillSeed, sumSeed := r.Uint64(), r.Uint64(), r.Uint64()
		Fill(unit, u, fillSeed)
		require.Equal(t, Sum(unit, sumSeed), FilledSum(u, len(unit), fillSeed, sumSeed), "%d bytes", len(unit))
	}
}

// newPool has planes of physical blocks of 40-byte units every 48 bytes.
func newPool(planes, physical int) Pool {
	p := Pool{BlockStride: 48, UnitBytes: 40}
	for range planes {
		p.Planes = append(p.Planes, make([]byte, physical*48))
	}
	return p
}

func TestSameContentInOtherBlocksHasTheSameTable(t *testing.T) {
	sent, got := newPool(4, 8), newPool(4, 8)
	from, to := []uint32{7, 0, 3}, []uint32{1, 2, 5}
	require.NoError(t, sent.Fill(from, 11))
	for p := range sent.Planes {
		for i := range from {
			copy(got.Planes[p][to[i]*48:][:40], sent.Planes[p][from[i]*48:][:40])
		}
	}
	before, err := sent.Sum(from, 5)
	require.NoError(t, err)
	require.Equal(t, FilledTable(4, 3, 40, 11, 5), before)
	after, err := got.Sum(to, 5)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Empty(t, before.Diff(after))
	require.Equal(t, before.Request(), after.Request())

	t.Run("a flipped bit names its unit", func(t *testing.T) {
		got.Planes[2][2*48+17] ^= 4
		after, err := got.Sum(to, 5)
		require.NoError(t, err)
		require.Equal(t, []Unit{{Plane: 2, Block: 1}}, before.Diff(after))
		layer, plane := before.Diff(after)[0].Layer(2)
		require.Equal(t, []int{1, 0}, []int{layer, plane})
		require.NotEqual(t, before.Request(), after.Request())
		require.NotEqual(t, before.Chunk(1, 2), after.Chunk(1, 2))
		require.Equal(t, before.Chunk(2, 3), after.Chunk(2, 3))
		got.Planes[2][2*48+17] ^= 4
	})
	t.Run("bytes between units do not count", func(t *testing.T) {
		got.Planes[0][1*48+40] ^= 0xff
		after, err := got.Sum(to, 5)
		require.NoError(t, err)
		require.Empty(t, before.Diff(after))
	})
	t.Run("swapped blocks", func(t *testing.T) {
		after, err := got.Sum([]uint32{2, 1, 5}, 5)
		require.NoError(t, err)
		require.Equal(t, []Unit{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}, before.Diff(after))
	})
	t.Run("swapped planes", func(t *testing.T) {
		swapped := got
		swapped.Planes = [][]byte{got.Planes[1], got.Planes[0], got.Planes[2], got.Planes[3]}
		after, err := swapped.Sum(to, 5)
		require.NoError(t, err)
		require.Equal(t, []Unit{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}, before.Diff(after))
	})
}

func TestDiffOfOtherShapes(t *testing.T) {
	small, large := FilledTable(1, 2, 40, 1, 1), FilledTable(2, 2, 40, 1, 1)
	all := []Unit{{0, 0}, {0, 1}, {1, 0}, {1, 1}}
	require.Equal(t, all, small.Diff(large))
	require.Equal(t, all, large.Diff(small))
	otherSize := large
	otherSize.UnitBytes = 41
	require.Equal(t, all, large.Diff(otherSize))
}

func TestRequestIsTheFoldOfAllUnits(t *testing.T) {
	table := FilledTable(2, 3, 40, 1, 1)
	require.Equal(t, Fold(table.Sums, 40), table.Request())
	chunk := Fold([]uint64{table.At(0, 1), table.At(0, 2), table.At(1, 1), table.At(1, 2)}, 40)
	require.Equal(t, chunk, table.Chunk(1, 3))
}

func TestPoolReachesTheLastByteAndNoFurther(t *testing.T) {
	p := newPool(1, 4)
	p.Planes[0] = p.Planes[0][:3*48+40]
	require.NoError(t, p.Fill([]uint32{3}, 1))
	p.Planes[0] = p.Planes[0][:3*48+39]
	require.ErrorContains(t, p.Fill([]uint32{3}, 1), "it ends at byte 184 of 183")
}

func TestPoolRefusesBlocksOutside(t *testing.T) {
	for _, c := range []struct {
		name   string
		pool   Pool
		blocks []uint32
		want   string
	}{
		{"past the end", newPool(2, 4), []uint32{3, 4}, "walking block 4 (number 1 of the list) of plane 0: it ends at byte 232 of 192"},
		{"largest id", newPool(1, 4), []uint32{math.MaxUint32}, "walking block 4294967295"},
		{"no unit", Pool{BlockStride: 48}, nil, "0-byte units every 48 bytes: both must be positive"},
		{"no stride", Pool{UnitBytes: 48}, nil, "48-byte units every 0 bytes: both must be positive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.pool.Sum(c.blocks, 1)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, c.pool.Fill(c.blocks, 1), c.want)
		})
	}
}
