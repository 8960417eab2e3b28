package lmcmp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseShape(t *testing.T) {
	for _, c := range []struct{ spec, want, err string }{
		{DefaultShape, DefaultShape, ""},
		{" ( 2, 8,4,1 ,8 ) : FLOAT16 : 2 ;; ", "(2,8,4,1,8):float16:2", ""},
		{"(1,64,4,2,8):bfloat16:3", "(1,64,4,2,8):bfloat16:3", ""},
		{"(2,0,0,1,8):uint8:2", "(2,0,0,1,8):uint8:2", ""},
		{"(1,8,4,1,8):float16:2;(2,8,4,2,8):float32:1", "(1,8,4,1,8):float16:2;(2,8,4,2,8):float32:1", ""},
		{"", "", "it has no group"},
		{";;", "", "it has no group"},
		{"2,8,4,1,8:float16:2", "", "want (planes"},
		{"(2,8,4,1,8):float16", "", "want (planes"},
		{"(2,8,4,1,8):float16:2:3", "", "want (planes"},
		{"(2,8,4,1):float16:2", "", "4 dimensions, want 5"},
		{"(2,8,4,1,x):float16:2", "", `head size "x" is not an integer`},
		{"(2,8,4,1,8):float64:2", "", "there are float16, bfloat16"},
		{"(2,8,4,0,8):float16:2", "", "heads 0: must be positive"},
		{"(2,-8,4,1,8):float16:2", "", "blocks -8: must be positive"},
		{"(2,8,4,1,8):float16:0", "", "layers 0: must be positive"},
		{"(3,8,4,1,8):float16:1", "", "planes 3"},
		{"(2,99999999999,99999999999,1,8):float16:1", "", "overflows"},
		{"(2,8,4,1,8):float16:1;(2,9,4,1,8):float16:1", "", "same blocks and block size"},
	} {
		shape, err := ParseShape(c.spec)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "ParseShape(%q)", c.spec)
			continue
		}
		require.NoError(t, err, "ParseShape(%q)", c.spec)
		require.Equal(t, c.want, shape.String())
		again, err := ParseShape(shape.String())
		require.NoError(t, err)
		require.Equal(t, shape, again)
	}
}

func FuzzParseShape(f *testing.F) {
	f.Add(DefaultShape)
	f.Add("(1,8,4,1,8):float16:2;(2,8,4,2,8):float32:1")
	f.Fuzz(func(t *testing.T, spec string) {
		shape, err := ParseShape(spec)
		if err != nil {
			return
		}
		again, err := ParseShape(shape.String())
		require.NoError(t, err)
		require.Equal(t, shape, again)
	})
}

func TestSizes(t *testing.T) {
	shape, err := ParseShape(DefaultShape)
	require.NoError(t, err)
	require.Equal(t, 2<<30, shape.Bytes())
	require.Equal(t, 131_072, shape.TokenBytes())
	dims, stride := shape[0].Dims()
	require.Equal(t, []int{2, 1024, 16, 8, 128}, dims)
	require.Equal(t, []int{16777216, 16384, 1024, 128, 1}, stride)
	mla, err := ParseShape("(1,64,4,2,8):bfloat16:3")
	require.NoError(t, err)
	require.True(t, mla.MLA())
	dims, stride = mla[0].Dims()
	require.Equal(t, []int{64, 4, 16}, dims)
	require.Equal(t, []int{64, 16, 1}, stride)
}

func TestWithBlocks(t *testing.T) {
	open, err := ParseShape("(2,0,0,1,8):float16:2")
	require.NoError(t, err)
	filled, err := open.WithBlocks(8, 4)
	require.NoError(t, err)
	require.Equal(t, "(2,8,4,1,8):float16:2", filled.String())
	same, err := filled.WithBlocks(0, 4)
	require.NoError(t, err)
	require.Equal(t, filled, same)
	_, err = open.WithBlocks(8, 0)
	require.ErrorContains(t, err, "leaves the block size open")
	_, err = filled.WithBlocks(0, 16)
	require.ErrorContains(t, err, "has the block size 4, not 16")
	_, err = filled.WithBlocks(-1, 0)
	require.ErrorContains(t, err, "must be positive")
	_, err = open.WithBlocks(1<<40, 1<<40)
	require.ErrorContains(t, err, "overflows")
	require.NoError(t, filled.CheckChunk(8))
	require.ErrorContains(t, filled.CheckChunk(6), "not a multiple of the block size 4")
	require.Error(t, filled.CheckChunk(0))
}

// No client ever gets the null block, nor a block of another client, and one
// request never the same block twice.
func TestBands(t *testing.T) {
	shape, err := ParseShape("(2,64,4,1,8):float16:1")
	require.NoError(t, err)
	bands, err := shape.Bands(5)
	require.NoError(t, err)
	owner := map[int]int{NullBlock: -1}
	for client, band := range bands {
		for number := range 50 {
			ids, err := band.Take(number, 7)
			require.NoError(t, err)
			seen := map[int]bool{}
			for _, id := range ids {
				require.False(t, seen[id])
				seen[id] = true
				require.Less(t, id, 64)
				if who, taken := owner[id]; taken {
					require.Equal(t, client, who)
				}
				owner[id] = client
			}
		}
	}
	_, err = bands[0].Take(0, 13)
	require.ErrorContains(t, err, "needs 13 blocks, there are 12")
	_, err = shape.Bands(64)
	require.ErrorContains(t, err, "not enough for 64 clients")
}
