package store

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

const (
	blockSize = 4
	blockLen  = 8 // two values per token
)

// config evicts at the last moment and no more than needed.
func config(chunk int, chunks int64) Config {
	return Config{
		Chunk: chunk, BlockSize: blockSize, BlockLen: blockLen,
		Capacity:  chunks * int64(chunk/blockSize) * blockLen * 4,
		Watermark: 1, Ratio: -1,
		ModelName: "mini", Fingerprint: "weights",
	}
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// prompt returns n tokens from first on.
func prompt(first, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(first + i)
	}
	return tokens
}

// paged returns the blocks of n tokens; value j of block i is base+100i+j.
func paged(base float32, n int) [][]float32 {
	blocks := empty(n)
	for i, b := range blocks {
		for j := range b {
			b[j] = base + float32(100*i+j)
		}
	}
	return blocks
}

func empty(n int) [][]float32 {
	blocks := make([][]float32, (n+blockSize-1)/blockSize)
	for i := range blocks {
		blocks[i] = make([]float32, blockLen)
	}
	return blocks
}

// settle waits until nothing is queued or being written.
func settle(s *Store) {
	for st := s.state(); st.pending+st.inFlight > 0; st = s.state() {
		runtime.Gosched()
	}
}

func put(t *testing.T, s *Store, r kv.Request, src [][]float32) {
	t.Helper()
	require.NoError(t, s.Store(t.Context(), r, src))
	settle(s)
}

func lookup(t *testing.T, s *Store, r kv.Request) int {
	t.Helper()
	n, err := s.Lookup(t.Context(), r)
	require.NoError(t, err)
	return n
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"chunk that is no multiple of the block", func(c *Config) { c.Chunk = 6 }, "multiple of the engine's block size 4"},
		{"no chunk", func(c *Config) { c.Chunk = 0 }, "chunks of 0 tokens"},
		{"no block", func(c *Config) { c.BlockSize = 0 }, "blocks of 0 tokens"},
		{"no capacity", func(c *Config) { c.Capacity = 0 }, "capacity of 0 bytes"},
		{"a watermark above everything", func(c *Config) { c.Watermark = 2 }, "starting a store: making the tiers of a store: watermark 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(4, 10)
			test.change(&cfg)
			_, err := New(cfg)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Every prompt length around the chunk borders, by the law floor(P/C)*C.
func TestLookupFindsWholeChunks(t *testing.T) {
	for _, chunk := range []int{4, 8, 16} {
		for n := 1; n <= 3*chunk+1; n++ {
			s := open(t, config(chunk, 10))
			r := kv.Request{ID: "r", Tokens: prompt(10, n)}
			require.Zero(t, lookup(t, s, r))
			put(t, s, r, paged(0, n))
			require.Equal(t, n/chunk*chunk, lookup(t, s, r), "C=%d P=%d", chunk, n)
		}
	}
}

func TestLookupStopsAtTheFirstMiss(t *testing.T) {
	s := open(t, config(4, 10))
	put(t, s, kv.Request{Tokens: prompt(10, 12)}, paged(0, 12))

	for _, test := range []struct {
		name   string
		tokens []int32
		salt   string
		want   int
	}{
		{"same prompt", prompt(10, 12), "", 12},
		{"longer prompt", prompt(10, 40), "", 12},
		{"shorter prompt", prompt(10, 9), "", 8},
		{"other tail", append(prompt(10, 8), 7, 7, 7, 7), "", 8},
		{"other first token", append([]int32{9}, prompt(11, 11)...), "", 0},
		{"a stored chunk behind other tokens", append(prompt(90, 4), prompt(14, 4)...), "", 0},
		{"other salt", prompt(10, 12), "s", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, lookup(t, s, kv.Request{Tokens: test.tokens, Salt: test.salt}))
		})
	}
}

func TestKeysDependOnTheWeights(t *testing.T) {
	a, b := open(t, config(4, 10)), config(4, 10)
	b.Fingerprint = "other weights"
	r := kv.Request{Tokens: prompt(1, 4)}
	require.NotEqual(t, a.keys(r), open(t, b).keys(r))
	require.NotEqual(t, root("ab", "c"), root("a", "bc"))
}

func TestStoreCopies(t *testing.T) {
	for _, chunk := range []int{4, 8} {
		s := open(t, config(chunk, 10))
		r, src, dst := kv.Request{Tokens: prompt(10, 8)}, paged(1, 8), empty(8)
		put(t, s, r, src)
		src[0][0] = -1
		require.NoError(t, s.Load(t.Context(), r, 8, dst))
		require.Equal(t, paged(1, 8), dst, "C=%d", chunk)
		dst[0][0] = -1
		again := empty(8)
		require.NoError(t, s.Load(t.Context(), r, 8, again))
		require.Equal(t, paged(1, 8), again, "C=%d", chunk)
	}
}

func TestLoadReturnsWhatWasStored(t *testing.T) {
	s := open(t, config(8, 10))
	r := kv.Request{ID: "r", Tokens: prompt(10, 17)}
	want := paged(1, 17)
	put(t, s, r, paged(1, 17))

	t.Run("all that was found", func(t *testing.T) {
		dst := empty(17)
		require.NoError(t, s.Load(t.Context(), r, 16, dst))
		require.Equal(t, want[:4], dst[:4])
		require.Equal(t, make([]float32, blockLen), dst[4], "beyond the chunks nothing is written")
	})
	t.Run("one token less loads the last chunk whole", func(t *testing.T) {
		dst := empty(15)
		require.NoError(t, s.Load(t.Context(), r, 15, dst))
		require.Equal(t, want[:4], dst)
	})
	t.Run("blocks that are nil are left out", func(t *testing.T) {
		dst := empty(16)
		dst[1] = nil
		require.NoError(t, s.Load(t.Context(), r, 16, dst))
		require.Nil(t, dst[1])
		require.Equal(t, want[2], dst[2])
	})
}

func TestLoadRefuses(t *testing.T) {
	s := open(t, config(8, 10))
	r := kv.Request{ID: "r7", Tokens: prompt(10, 17)}
	require.ErrorContains(t, s.Load(t.Context(), r, 16, empty(16)), "request r7: chunk 0 is not stored")
	require.ErrorContains(t, s.Load(t.Context(), r, 17, empty(24)), "has 2 whole chunks of 8")
	require.ErrorContains(t, s.Load(t.Context(), r, 0, nil), "loading 0 tokens")
	put(t, s, r, paged(0, 17))
	require.ErrorContains(t, s.Load(t.Context(), r, 16, empty(12)), "into 3 blocks of 4: 4 are needed")
	require.ErrorContains(t, s.Load(t.Context(), r, 8, [][]float32{make([]float32, 3), make([]float32, 3)}), "holds 3 values, want 8")
}

func TestStoreRefuses(t *testing.T) {
	s := open(t, config(4, 10))
	r := kv.Request{ID: "r7", Tokens: prompt(10, 9)}
	require.ErrorContains(t, s.Store(t.Context(), r, empty(4)), "1 blocks of 4 tokens do not hold its 2 whole chunks")
	require.ErrorContains(t, s.Store(t.Context(), r, [][]float32{make([]float32, 3), make([]float32, 3)}), "3 values, want 8")
	require.Zero(t, s.state().pending)
}

func TestCancelledContext(t *testing.T) {
	s := open(t, config(4, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := kv.Request{Tokens: prompt(10, 4)}
	_, err := s.Lookup(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Load(ctx, r, 4, empty(4)), context.Canceled)
	require.ErrorIs(t, s.Store(ctx, r, paged(0, 4)), context.Canceled)
	require.ErrorIs(t, s.Reset(ctx), context.Canceled)
}

func TestConcurrentUse(t *testing.T) {
	s := open(t, config(4, 20))
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range 50 {
				r := kv.Request{Tokens: prompt(100*(i%7)+1, 12)}
				src := paged(float32(i%7), 12)
				if err := s.Store(t.Context(), r, src); err != nil {
					t.Errorf("Store: %v", err)
				}
				n, err := s.Lookup(t.Context(), r)
				dst := empty(12)
				if err == nil && n > 0 && s.Load(t.Context(), r, n, dst) == nil && dst[0][0] != src[0][0] {
					t.Errorf("Load gave %v, want %v", dst[0][0], src[0][0])
				}
				if w == 0 && i%20 == 0 {
					_ = s.Reset(t.Context())
				}
				if n := len(s.Chunks()); n > 20 {
					t.Errorf("%d chunks are stored, the capacity is 20", n)
				}
			}
		})
	}
	workers.Wait()
}
