package fault

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
)

const blockSize = 4

// A bench is a healthy store, the same store behind an injector, and requests.
type bench struct {
	*testing.T
	model    *model.Model
	healthy  *chunks
	faulty   kv.Store
	injector *Injector
	prompts  int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	m := nano(t)
	s := &chunks{stored: map[string][]float32{}}
	i := NewInjector(m, blockSize)
	return &bench{T: t, model: m, healthy: s, faulty: i.WrapStore(s), injector: i}
}

// request makes a fresh prompt of n tokens with KV of its own.
func (b *bench) request(n int) (kv.Request, [][]float32) {
	b.prompts++
	r := kv.Request{ID: fmt.Sprintf("r%d", b.prompts), Tokens: make([]int32, n)}
	values := rand.New(rand.NewPCG(uint64(b.prompts), 0))
	for i := range r.Tokens {
		r.Tokens[i] = int32(100*b.prompts + i)
	}
	blocks := b.empty(n)
	for _, block := range blocks {
		for i := range block {
			block[i] = float32(values.NormFloat64())
		}
	}
	return r, blocks
}

func (b *bench) empty(n int) [][]float32 {
	blocks := make([][]float32, (n+blockSize-1)/blockSize)
	for i := range blocks {
		blocks[i] = make([]float32, b.model.BlockLen(blockSize))
	}
	return blocks
}

// stored is request, and the store holds it.
func (b *bench) stored(n int) (kv.Request, [][]float32) {
	r, blocks := b.request(n)
	require.NoError(b, b.faulty.Store(b.Context(), r, blocks))
	b.waitFor(r, n/blockSize*blockSize)
	return r, blocks
}

func (b *bench) waitFor(r kv.Request, want int) {
	n, err := b.healthy.Lookup(b.Context(), r)
	require.NoError(b, err)
	require.Equal(b, want, n)
}

func (b *bench) load(r kv.Request, tokens int) [][]float32 {
	dst := b.empty(tokens)
	require.NoError(b, b.faulty.Load(b.Context(), r, tokens, dst))
	return dst
}

// differing counts the values that differ, by block.
func differing(want, got [][]float32) []int {
	counts := make([]int, len(want))
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(want[i][j]) != math.Float32bits(got[i][j]) {
				counts[i]++
			}
		}
	}
	return counts
}

func TestDamage(t *testing.T) {
	for _, test := range []struct {
		fault  Fault
		tokens int
		counts func(blockLen int) []int
	}{
		{fault: BitFlip, tokens: 16, counts: func(int) []int { return []int{0, 1, 0, 0} }},
		{fault: BitFlip, tokens: 3, counts: func(int) []int { return []int{1} }},
		{fault: NaN, tokens: 16, counts: func(int) []int { return []int{0, 1, 0, 0} }},
		{fault: NaN, tokens: 2, counts: func(int) []int { return []int{1} }},
		{fault: ZeroBlock, tokens: 15, counts: func(n int) []int { return []int{0, n, 0, 0} }},
		{fault: SwappedBlocks, tokens: 16, counts: func(n int) []int { return []int{0, n, n, 0} }},
		{fault: SwappedBlocks, tokens: 4, counts: func(int) []int { return []int{0} }},
		{fault: TokensPermuted, tokens: 16, counts: func(n int) []int { return []int{0, n, 0, 0} }},
		{fault: TokensPermuted, tokens: 3, counts: func(n int) []int { return []int{n / 2} }}, // 2 of 4 move
	} {
		t.Run(fmt.Sprintf("%s/%d", test.fault, test.tokens), func(t *testing.T) {
			b := newBench(t)
			r, healthy := b.stored(16)
			healthy = healthy[:(test.tokens+blockSize-1)/blockSize]
			require.NoError(t, b.injector.Plant(test.fault))
			damaged := b.load(r, test.tokens)
			require.Equal(t, test.counts(b.model.BlockLen(blockSize)), differing(healthy, damaged))

			nans := 0
			for _, v := range slices.Concat(damaged...) {
				if v != v {
					nans++
				}
			}
			require.Equal(t, test.fault == NaN, nans == 1)
			require.Equal(t, test.fault == ZeroBlock, slices.Equal(damaged[(len(damaged)-1)/2], make([]float32, len(damaged[0]))))
			b.injector.Clear()
			require.Equal(t, healthy, b.load(r, test.tokens), "the stored bytes are whole")
		})
	}
}

func TestBitFlipChangesOneExponentBitOfATokenThatIsRead(t *testing.T) {
	b := newBench(t)
	r, healthy := b.stored(4)
	require.NoError(t, b.injector.Plant(BitFlip))
	for tokens := 1; tokens <= 4; tokens++ {
		damaged := b.load(r, tokens)
		at := slices.IndexFunc(damaged[0], func(v float32) bool { return !slices.Contains(healthy[0], v) })
		require.GreaterOrEqual(t, at, 0)
		ratio := damaged[0][at] / healthy[0][at]
		require.Contains(t, []float32{2, 0.5}, ratio)
		from, _ := b.model.Span(blockSize, b.model.Config().Layers/2, model.Values, 0)
		_, to := b.model.Span(blockSize, b.model.Config().Layers/2, model.Values, tokens-1)
		require.True(t, from <= at && at < to, "value %d is of none of the %d tokens", at, tokens)
	}
}

func TestTokensPermutedMovesWholeTokens(t *testing.T) {
	b := newBench(t)
	r, healthy := b.stored(4)
	require.NoError(t, b.injector.Plant(TokensPermuted))
	damaged := b.load(r, 4)
	for layer := range b.model.Config().Layers {
		for _, plane := range []model.Plane{model.Keys, model.Values} {
			for token := range blockSize {
				from, to := b.model.Span(blockSize, layer, plane, token)
				of, oto := b.model.Span(blockSize, layer, plane, blockSize-1-token)
				require.Equal(t, healthy[0][of:oto], damaged[0][from:to])
			}
		}
	}
}

func TestOtherRequest(t *testing.T) {
	b := newBench(t)
	first, firstKV := b.stored(8)
	second, secondKV := b.stored(12)
	require.NoError(t, b.injector.Plant(OtherRequest))
	require.Equal(t, firstKV, b.load(first, 8), "nothing came before")
	require.Equal(t, firstKV, b.load(first, 8), "its own KV again")
	require.Equal(t, append(slices.Clone(firstKV), secondKV[2]), b.load(second, 12))
	require.Equal(t, secondKV[:2], b.load(first, 8), "the KV that was really stored for the other")
}

func TestHitLengths(t *testing.T) {
	for _, test := range []struct {
		fault  Fault
		prompt int
		found  int // by a healthy store
		want   int
	}{
		{HitPlusOneToken, 10, 8, 9},
		{HitPlusOneToken, 8, 8, 8},
		{HitPlusOneBlock, 14, 12, 14},
		{HitPlusOneBlock, 12, 8, 12}, // a prompt that shares 8 tokens
		{HitMinusOneToken, 10, 8, 7},
		{HitMinusOneToken, 8, 8, 6},
		{HitMinusOneBlock, 10, 8, 4},
		{HitMinusOneBlock, 5, 4, 0},
	} {
		t.Run(fmt.Sprintf("%s/%d of %d", test.fault, test.found, test.prompt), func(t *testing.T) {
			b := newBench(t)
			stored, healthy := b.stored(test.found)
			r := kv.Request{ID: "r", Tokens: append(slices.Clone(stored.Tokens), make([]int32, test.prompt-test.found)...)}
			require.NoError(t, b.injector.Plant(test.fault))
			got, err := b.faulty.Lookup(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, test.want, got)

			miss := kv.Request{ID: "m", Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8}}
			none, err := b.faulty.Lookup(t.Context(), miss)
			require.NoError(t, err)
			require.Zero(t, none, "a miss stays a miss")

			if got == 0 {
				return
			}
			used := min(got, test.prompt-1) // as an engine does
			dst := b.load(r, used)
			require.Empty(t, b.faulty.(*faultyStore).found, "nothing is kept beyond the load")
			whole := min(len(dst), len(healthy))
			require.Equal(t, healthy[:whole], dst[:whole])
			for _, block := range dst[whole:] {
				require.Equal(t, make([]float32, len(block)), block, "KV that does not exist is zero")
			}
		})
	}
}

func TestLostStore(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.injector.Plant(LostStore))
	r, blocks := b.request(8)
	require.NoError(t, b.faulty.Store(t.Context(), r, blocks))
	require.Empty(t, b.healthy.stored)
}

func TestLateStore(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.injector.Plant(LateStore))
	r1, blocks1 := b.request(8)
	want := keep(r1, blocks1).blocks
	require.NoError(t, b.faulty.Store(t.Context(), r1, blocks1))
	clear(blocks1[0]) // src may be reused
	n, err := b.healthy.Lookup(t.Context(), r1)
	require.NoError(t, err)
	require.Zero(t, n)

	r2, blocks2 := b.request(4)
	require.NoError(t, b.faulty.Store(t.Context(), r2, blocks2))
	b.waitFor(r1, 8)
	require.Equal(t, want, b.load(r1, 8))

	b.injector.Clear()
	r3, blocks3 := b.request(4)
	require.NoError(t, b.faulty.Store(t.Context(), r3, blocks3))
	b.waitFor(r2, 4)
	b.waitFor(r3, 4)

	require.NoError(t, b.injector.Plant(LateStore))
	r4, blocks4 := b.request(4)
	require.NoError(t, b.faulty.Store(t.Context(), r4, blocks4))
	require.NoError(t, b.faulty.Reset(t.Context()))
	r5, blocks5 := b.request(4)
	require.NoError(t, b.faulty.Store(t.Context(), r5, blocks5))
	require.Empty(t, b.healthy.stored, "a reset forgets what is held")
}

func TestHealthyStoreIsUntouched(t *testing.T) {
	b := newBench(t)
	r, blocks := b.stored(10)
	require.Equal(t, blockSize, b.faulty.Chunk())
	n, err := b.faulty.Lookup(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	require.Equal(t, blocks[:2], b.load(r, 8))
	require.NoError(t, b.faulty.Reset(t.Context()))
	n, err = b.faulty.Lookup(t.Context(), r)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestSecondHitWearsOneMoreTime(t *testing.T) {
	b := newBench(t)
	r, healthy := b.stored(8)
	other, otherHealthy := b.stored(8)
	require.NoError(t, b.injector.Plant(SecondHit))
	require.Equal(t, healthy, b.load(r, 8))
	require.Equal(t, []int{1, 0}, differing(healthy, b.load(r, 8)))
	require.Equal(t, otherHealthy, b.load(other, 8), "each prompt has a first time")
	require.Equal(t, []int{1, 0}, differing(healthy, b.load(r, 8)))
	b.injector.Clear()
	require.Equal(t, healthy, b.load(r, 8))
}
