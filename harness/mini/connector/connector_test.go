package connector

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

const (
	block  = 4
	chunk  = 8
	layers = 3
	hidden = 6
	limit  = 20 * time.Second
	poll   = time.Millisecond
)

func serve(t *testing.T, c lmcache.Config) *lmcache.Server {
	t.Helper()
	c.Chunk, c.L1Bytes = chunk, 1<<20
	s, err := lmcache.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

func connect(t *testing.T, s *lmcache.Server, transfer, model string) *Connector {
	t.Helper()
	c, err := New(t.Context(), Config{
		Endpoint: s.Endpoint(), Dialect: s.Dialect(), Transfer: transfer, Model: model,
		BlockSize: block, Layers: layers, Hidden: hidden, Staging: 2 * chunk, Patience: limit,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

func prompt(id string, first int32, n int) kv.Request {
	r := kv.Request{ID: id, Tokens: make([]int32, n)}
	for i := range r.Tokens {
		r.Tokens[i] = first + int32(i)
	}
	return r
}

// paged is the KV of n tokens: values that differ.
func paged(seed float32, n int) [][]float32 {
	blocks := make([][]float32, (n+block-1)/block)
	for b := range blocks {
		blocks[b] = make([]float32, 2*layers*block*hidden)
		for i := range blocks[b] {
			blocks[b][i] = seed + float32(b*len(blocks[b])+i)
		}
	}
	return blocks
}

// found looks a prompt up until so many tokens of it are there.
func found(t *testing.T, c *Connector, r kv.Request, want int) {
	t.Helper()
	for n := 0; ; n++ {
		r := r
		r.ID, r.SkipSave = fmt.Sprintf("%s-%d", r.ID, n), true
		got, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		if got > 0 {
			require.NoError(t, c.Load(t.Context(), r, got, paged(0, got)))
		}
		if got == want {
			return
		}
		require.Less(t, n, 100000, "%d tokens are found, want %d", got, want)
	}
}

func locked(t *testing.T, s *lmcache.Server) (locks, sessions string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/status", nil))
	field := func(name string) string {
		_, rest, ok := strings.Cut(w.Body.String(), name)
		require.True(t, ok)
		return rest[:strings.IndexAny(rest, ",}")]
	}
	return field(`"read_locked_count":`), field(`"active_sessions":`)
}

func inBoth(t *testing.T, f func(t *testing.T, transfer string)) {
	t.Helper()
	for _, transfer := range []string{EngineDriven, LMCacheDriven} {
		t.Run(transfer, func(t *testing.T) { f(t, transfer) })
	}
}

func TestWhatIsLoadedIsWhatWasStored(t *testing.T) {
	inBoth(t, func(t *testing.T, transfer string) {
		for _, n := range []int{chunk, chunk + 1, 3*chunk + 3, 7 * chunk} { // more than fits into the staging blocks
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				s := serve(t, lmcache.Config{})
				c := connect(t, s, transfer, "m")
				require.Equal(t, chunk, c.Chunk())
				r, src := prompt("a", 100, n), paged(1, n)
				got, err := c.Lookup(t.Context(), r)
				require.NoError(t, err)
				require.Zero(t, got)
				require.NoError(t, c.Store(t.Context(), r, src))
				whole := n / chunk * chunk
				found(t, c, r, whole)

				again := r
				again.ID = "b"
				got, err = c.Lookup(t.Context(), again)
				require.NoError(t, err)
				require.Equal(t, whole, got)
				dst := paged(0, whole)
				require.NoError(t, c.Load(t.Context(), again, whole, dst))
				require.Equal(t, src[:whole/block], dst)
				locks, sessions := locked(t, s)
				require.Equal(t, "0", locks)
				require.Equal(t, "0", sessions, "the end of each request was told")
			})
		}
	})
}

// Fewer tokens than were found may be loaded, and blocks may be left out.
func TestPartOfAHit(t *testing.T) {
	inBoth(t, func(t *testing.T, transfer string) {
		s := serve(t, lmcache.Config{})
		c := connect(t, s, transfer, "m")
		r, src := prompt("a", 1, 3*chunk), paged(1, 3*chunk)
		require.NoError(t, c.Store(t.Context(), r, src))
		found(t, c, r, 3*chunk)
		r.ID = "b"
		got, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, 3*chunk, got)
		dst := paged(0, chunk+1)
		dst[1] = nil
		require.NoError(t, c.Load(t.Context(), r, chunk+1, dst))
		require.Equal(t, src[0], dst[0])
		require.Equal(t, src[2], dst[2], "a chunk is loaded whole as far as dst reaches")
		locks, _ := locked(t, s)
		require.Equal(t, "0", locks, "what was not loaded is freed")
	})
}

// A prompt of which nothing is to be had and nothing to be kept leaves nothing
// behind at the server.
func TestShortPromptsLeaveNothing(t *testing.T) {
	s := serve(t, lmcache.Config{})
	c := connect(t, s, EngineDriven, "m")
	long := prompt("long", 1, chunk)
	long.SkipSave = true
	for _, r := range []kv.Request{prompt("short", 1, chunk-1), long} {
		got, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		require.Zero(t, got)
		_, sessions := locked(t, s)
		require.Equal(t, "0", sessions, r.ID)
	}
}

func TestKeysAreApart(t *testing.T) {
	s := serve(t, lmcache.Config{})
	c := connect(t, s, EngineDriven, "m")
	r := prompt("a", 1, chunk)
	for _, salt := range []string{"", "s", "a@b/c", strings.Repeat("x", 300)} {
		r.Salt = salt
		require.NoError(t, c.Store(t.Context(), r, paged(1, chunk)))
		found(t, c, r, chunk)
		other := r
		other.Salt += "!"
		found(t, c, other, 0)
	}
	r.Salt = ""
	found(t, connect(t, s, EngineDriven, "other weights"), r, 0)
}

func TestReset(t *testing.T) {
	s := serve(t, lmcache.Config{})
	c := connect(t, s, EngineDriven, "m")
	r := prompt("a", 1, 2*chunk)
	require.NoError(t, c.Store(t.Context(), r, paged(1, 2*chunk)))
	found(t, c, r, 2*chunk)
	require.NoError(t, c.Reset(t.Context()))
	found(t, c, r, 0)
}

func TestLoadsThatCannotBe(t *testing.T) {
	inBoth(t, func(t *testing.T, transfer string) {
		s := serve(t, lmcache.Config{})
		c := connect(t, s, transfer, "m")
		r := prompt("a", 1, 2*chunk+1)
		for _, test := range []struct {
			name   string
			tokens int
			dst    [][]float32
			want   string
		}{
			{"nothing", 0, nil, "loading 0 tokens"},
			{"more than whole chunks", 2*chunk + 1, paged(0, 3*chunk), "has 2 whole chunks of 8"},
			{"too few blocks", chunk, paged(0, block), "2 are needed"},
			{"not stored", chunk, paged(0, chunk), "not stored, or was evicted"},
		} {
			t.Run(test.name, func(t *testing.T) {
				require.ErrorContains(t, c.Load(t.Context(), r, test.tokens, test.dst), test.want)
			})
		}
		require.NoError(t, c.Store(t.Context(), r, paged(1, 2*chunk+1)))
		found(t, c, r, 2*chunk)
		short := paged(0, chunk)
		short[1] = short[1][1:]
		require.ErrorContains(t, c.Load(t.Context(), r, chunk, short), "block 1 has")
		require.ErrorContains(t, c.Store(t.Context(), r, paged(1, chunk)), "2 blocks of 4 tokens do not hold its 2 whole chunks")
	})
}

func TestConnectingFails(t *testing.T) {
	s := serve(t, lmcache.Config{Transfer: LMCacheDriven})
	config := Config{Endpoint: s.Endpoint(), Dialect: s.Dialect(), Model: "m", BlockSize: block, Layers: layers, Hidden: hidden, Patience: 100 * time.Millisecond}
	_, err := New(t.Context(), config)
	require.ErrorContains(t, err, "does not offer engine_driven")
	require.True(t, wire.IsTimeout(err))
	config.BlockSize = 5
	_, err = New(t.Context(), config)
	require.ErrorContains(t, err, "chunk of 8 tokens is no multiple of the engine's block of 5")
	config.BlockSize, config.Transfer = block, "nope"
	_, err = New(t.Context(), config)
	require.ErrorContains(t, err, `transfer "nope"`)
	require.NoError(t, s.Close(t.Context()))
	_, err = New(t.Context(), config)
	require.ErrorContains(t, err, "refused")
}

func TestADeadServerIsAnErrorWithTheOperationsName(t *testing.T) {
	s := serve(t, lmcache.Config{})
	c, err := New(t.Context(), Config{Endpoint: s.Endpoint(), Dialect: s.Dialect(), Model: "m", BlockSize: block, Layers: layers, Hidden: hidden})
	require.NoError(t, err)
	s.Kill()
	_, err = c.Lookup(t.Context(), prompt("a", 1, chunk))
	require.ErrorContains(t, err, "looking up request a: lookup: ")
	require.Error(t, c.Close(t.Context()))
}

func TestNothingIsLeftInSharedMemory(t *testing.T) {
	before, err := shm.List()
	require.NoError(t, err)
	s, err := lmcache.Start(t.Context(), lmcache.Config{Chunk: chunk, L1Bytes: 1 << 16})
	require.NoError(t, err)
	c, err := New(t.Context(), Config{Endpoint: s.Endpoint(), Dialect: s.Dialect(), Transfer: LMCacheDriven, Model: "m", BlockSize: block, Layers: layers, Hidden: hidden})
	require.NoError(t, err)
	mine := c.transfer.(*lmcacheDriven).layers[0].Name()
	during, err := shm.List()
	require.NoError(t, err)
	require.Contains(t, during, mine)
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	after, err := shm.List()
	require.NoError(t, err)
	require.NotContains(t, after, mine)
	require.NotSubset(t, after, difference(during, before), "the pool, too")
}

// difference is what a has and b has not, and is never empty here.
func difference(a, b []string) (only []string) {
	for _, name := range a {
		if !strings.Contains(strings.Join(b, " ")+" ", name+" ") {
			only = append(only, name)
		}
	}
	return only
}
