package daser

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// A gate stops the worker between allocation and commit until it is opened.
type gate struct {
	open    chan struct{}
	reached chan struct{}
	once    sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{open: make(chan struct{}), reached: make(chan struct{}, 100)}
	t.Cleanup(g.release)
	return g
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) wait() {
	g.reached <- struct{}{}
	<-g.open
}

// through gates the stack's worker. The gate opens before the store is closed.
func through(g *gate) option { return func(p *plan) { p.beforeWrite = g.wait } }

func impatient(p *plan) { p.server.DrainTimeout, p.server.CommitTimeout = 1, 1 }

// TestOnlyWhatIsCommittedIsVisible: an answer in hand does not mean that its
// KV can be found; after /drain it does.
func TestOnlyWhatIsCommittedIsVisible(t *testing.T) {
	for _, mode := range []Mode{Prefix, Chunk} {
		t.Run(string(mode), func(t *testing.T) {
			g := newGate(t)
			s := newStack(t, mode, through(g))
			t.Cleanup(g.release)
			ids := tokens(1, 3*size)
			cold := s.complete(t, ids, nil)
			<-g.reached
			again := s.complete(t, ids, nil)
			require.Zero(t, again.cached, "allocated, not committed")
			requireSame(t, cold, again)
			require.InDelta(t, -1, s.counter(t, "daser_cache_committed_chunks_total"), 0)

			drained := make(chan struct{})
			go func() {
				defer close(drained)
				s.drain(t)
			}()
			select {
			case <-drained:
				require.Fail(t, "drained with an uncommitted store")
			default:
			}
			g.release()
			<-drained
			require.Equal(t, 3*size-1, s.complete(t, ids, nil).cached)
			s.drain(t)
			want := map[Mode]float64{Prefix: 3, Chunk: 1}[mode]
			require.InDelta(t, want, s.counter(t, "daser_cache_committed_chunks_total"), 0)
			slot := float64(4 * nano().BlockLen(size))
			require.InDelta(t, 3*slot, s.counter(t, `daser_transfer_bytes_total{op="store"}`), 0, "each chunk once, though stored twice")
		})
	}
}

func TestDrainTimesOut(t *testing.T) {
	g := newGate(t)
	s := newStack(t, Prefix, through(g), impatient)
	t.Cleanup(g.release)
	s.drain(t) // nothing to wait for
	s.complete(t, tokens(1, 2*size), nil)
	s.refused(t, http.MethodPost, "/drain", nil, http.StatusGatewayTimeout, "2 uncommitted chunks")
}

func TestDrainEndsWithItsClient(t *testing.T) {
	g := newGate(t)
	s := newStack(t, Prefix, through(g))
	t.Cleanup(g.release)
	s.complete(t, tokens(1, 2*size), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.store.Drain(ctx), context.Canceled)
}

// TestEvictionBeforeTheCommit: what is evicted while it is on its way never
// becomes visible.
func TestEvictionBeforeTheCommit(t *testing.T) {
	g := newGate(t)
	s := newStack(t, Chunk, through(g))
	t.Cleanup(g.release)
	ids := tokens(1, 3*size)
	s.complete(t, ids, nil)
	<-g.reached
	key := chunkKey(littleEndian(ids), "")
	require.Zero(t, s.store.Evict(key), "nothing was stored yet")
	require.ErrorIs(t, s.store.Await(t.Context(), key), ErrNotStored)
	g.release()
	s.drain(t)
	require.Eventually(t, func() bool {
		return s.counter(t, "daser_cache_late_evicted_commits_total") == 1
	}, waitLimit, poll)
	require.False(t, s.store.Has(key))
	require.Equal(t, tier.None, s.store.objects.Where(key))
	require.Zero(t, s.complete(t, ids, nil).cached)
	s.drain(t)
	require.Equal(t, 3*size-1, s.complete(t, ids, nil).cached, "the next store is as good as any")
}

// TestCloseCommits: what was allocated is written before the worker ends.
func TestCloseCommits(t *testing.T) {
	g := newGate(t)
	s, err := startStore(StoreConfig{Mode: Prefix, Model: nano(), BlockSize: size, Tiers: tier.Config{L1Bytes: 1 << 20}}, g.wait)
	require.NoError(t, err)
	block := make([]float32, nano().BlockLen(size))
	require.NoError(t, s.Store(t.Context(), request("x", tokens(1, size)), [][]float32{block}))
	<-g.reached
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	g.release()
	require.NoError(t, <-closed)
	require.Len(t, s.committed, 1)
}

// TestStoreCopies: the engine reuses its blocks as soon as Store returns.
func TestStoreCopies(t *testing.T) {
	g := newGate(t)
	s, err := startStore(StoreConfig{Mode: Prefix, Model: nano(), BlockSize: size, Tiers: tier.Config{L1Bytes: 1 << 20}}, g.wait)
	require.NoError(t, err)
	block := make([]float32, nano().BlockLen(size))
	block[5] = 7
	r := request("x", tokens(1, size))
	require.NoError(t, s.Store(t.Context(), r, [][]float32{block}))
	block[5] = 8
	g.release()
	require.NoError(t, s.Drain(t.Context()))
	got := make([]float32, len(block))
	require.NoError(t, s.Load(t.Context(), r, size, [][]float32{got}))
	require.InDelta(t, 7, got[5], 0)
	got[5] = 9
	again := make([]float32, len(block))
	require.NoError(t, s.Load(t.Context(), r, size, [][]float32{again}))
	require.InDelta(t, 7, again[5], 0, "what was loaded is a copy too")
	require.ErrorContains(t, s.Load(t.Context(), r, size, nil), "1 are needed")
	require.ErrorContains(t, s.Load(t.Context(), r, size, [][]float32{{1}}), "holds 1 values")
	require.ErrorContains(t, s.Load(t.Context(), request("y", tokens(2, size)), size, [][]float32{got}), "0 tokens are stored")
	require.ErrorContains(t, s.Store(t.Context(), request("y", tokens(2, size)), nil), "do not hold")
	require.NoError(t, s.Close())
}
