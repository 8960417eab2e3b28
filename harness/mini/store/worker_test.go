package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/kv"
)

func TestStoreIsVisibleOnlyWhenWritten(t *testing.T) {
	taken, write := make(chan bool), make(chan bool)
	s, err := start(config(4, 10), func() { taken <- true; <-write })
	require.NoError(t, err)
	first := kv.Request{Tokens: prompt(10, 8)}
	second := kv.Request{Tokens: prompt(50, 12)}
	require.NoError(t, s.Store(t.Context(), first, paged(0, 8)))
	<-taken
	require.NoError(t, s.Store(t.Context(), second, paged(0, 12)))
	require.NoError(t, s.Store(t.Context(), second, paged(0, 12)), "a chunk on its way is not queued again")

	require.Zero(t, lookup(t, s, first), "acknowledged is not visible")
	st := s.status().StorageManager.Store
	require.Equal(t, []int{3, 1}, []int{st.Pending, st.InFlight})

	write <- true
	<-taken
	require.Equal(t, 8, lookup(t, s, first))
	require.Zero(t, lookup(t, s, second))
	require.Equal(t, 1, s.state().inFlight)
	write <- true
	settle(s)
	require.Equal(t, 12, lookup(t, s, second))
	require.NoError(t, s.Close())
}

func TestCloseWritesWhatWasAcknowledged(t *testing.T) {
	taken, write := make(chan bool), make(chan bool)
	s, err := start(config(4, 10), func() { taken <- true; <-write })
	require.NoError(t, err)
	r := kv.Request{Tokens: prompt(10, 8)}
	require.NoError(t, s.Store(t.Context(), r, paged(0, 8)))
	<-taken
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	write <- true
	require.NoError(t, <-closed)
	require.Equal(t, only(2), scrape(t, s, "lmcache_mp_l1_write_chunks_total"))
	require.NoError(t, s.Close(), "closing again")

	_, err = s.Lookup(t.Context(), r)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Load(t.Context(), r, 8, empty(8)), ErrClosed)
	require.ErrorIs(t, s.Store(t.Context(), r, paged(0, 8)), ErrClosed)
}

func TestResetForgetsAlsoWhatIsBeingWritten(t *testing.T) {
	taken, write := make(chan bool), make(chan bool)
	s, err := start(config(4, 10), func() { taken <- true; <-write })
	require.NoError(t, err)
	done, busy, queued := kv.Request{Tokens: prompt(10, 4)}, kv.Request{Tokens: prompt(20, 4)}, kv.Request{Tokens: prompt(30, 4)}
	require.NoError(t, s.Store(t.Context(), done, paged(0, 4)))
	<-taken
	write <- true
	require.NoError(t, s.Store(t.Context(), busy, paged(0, 4)))
	<-taken
	require.NoError(t, s.Store(t.Context(), queued, paged(0, 4)))

	require.NoError(t, s.Reset(t.Context()))
	write <- true
	settle(s)
	for _, r := range []kv.Request{done, busy, queued} {
		require.Zero(t, lookup(t, s, r))
	}
	require.Zero(t, s.state().L1.Bytes)

	require.NoError(t, s.Store(t.Context(), busy, paged(0, 4)), "stored again after the reset")
	<-taken
	write <- true
	settle(s)
	require.Equal(t, 4, lookup(t, s, busy))
	require.NoError(t, s.Close())
}

func TestEviction(t *testing.T) {
	s := open(t, config(4, 3))
	a, b := kv.Request{Tokens: prompt(10, 8)}, kv.Request{Tokens: prompt(20, 4)}
	put(t, s, a, paged(0, 8))
	put(t, s, b, paged(0, 4))
	require.Equal(t, 8, lookup(t, s, a), "full, nothing evicted; a is now the more recent")

	put(t, s, kv.Request{Tokens: prompt(30, 4)}, paged(0, 4))
	require.Equal(t, []int{8, 0}, []int{lookup(t, s, a), lookup(t, s, b)}, "the least recently used went")

	put(t, s, b, paged(0, 4)) // evicts 30, then
	put(t, s, kv.Request{Tokens: prompt(40, 4)}, paged(0, 4))
	require.Equal(t, 4, lookup(t, s, a), "the tail of a prompt goes before its start")
	require.Equal(t, 3, s.state().L1.Objects)
	require.Equal(t, 3*s.ChunkBytes(), s.state().L1.Bytes)

	fresh := open(t, config(4, 3))
	put(t, fresh, a, paged(0, 8))
	put(t, fresh, kv.Request{Tokens: prompt(30, 8)}, paged(0, 8))
	require.Equal(t, 4, lookup(t, fresh, a), "also of a prompt that nobody has looked up")

	small := open(t, Config{Chunk: 8, BlockSize: 4, BlockLen: blockLen, Capacity: 63})
	put(t, small, a, paged(0, 8))
	require.Zero(t, small.state().L1.Objects, "a chunk that never fits is dropped")
	require.Equal(t, only(1), scrape(t, small, "kvproof_store_failed_chunks_total"))
}
