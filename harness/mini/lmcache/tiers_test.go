package lmcache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

const tiny = 64 // bytes of a chunk of mla

// small engine-driven KV: one layer of 16 bytes a token, one plane.
var mla = wire.EngineContext{BlockSize: 4, Layers: 1, Hidden: 16, DType: "uint8", MLA: true}

// newTiers is a server with room for 10 chunks at the watermark and 5 below it.
func newTiers(t *testing.T, c Config) (*Server, *client) {
	t.Helper()
	c.Align, c.L1Bytes, c.Staging, c.Watermark, c.Ratio = 1, 10*tiny, 20*tiny, 1, 0.5
	s := serve(t, c)
	client := connect(t, s, 1)
	client.registerEngine(s, mla)
	return s, client
}

// put stores a prompt of n chunks and returns its key.
func (c *client) put(first uint32, n int) wire.Key {
	c.t.Helper()
	k := key(string(rune('a'+first)), prompt(first, n*chunk)...)
	data := make([][]byte, n)
	for i := range data {
		data[i] = chunkData(byte(10*int(first)+i), tiny)
	}
	c.write(k, data...)
	return k
}

// held is how many chunks of a prompt are in L1, in order.
func held(s *Server, k wire.Key) (in []bool) {
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	for _, row := range rows(&k, hashChunks(k.Tokens, chunk, len(k.Tokens)), 1) {
		in = append(in, s.objects.where(row[0]) == inL1)
	}
	return in
}

func TestTheLeastRecentlyUsedLeaveFirst(t *testing.T) {
	s, c := newTiers(t, Config{})
	a, b := c.put(1, 4), c.put(2, 4)
	c.finds(a, 4) // used again
	d := c.put(3, 3)
	// The eleventh chunk, the first of d to be put being its last, brings L1
	// over its 10: down to 5 with it, the oldest leave, b from its tail on.
	require.Equal(t, []bool{false, false, false, false}, held(s, b))
	require.Equal(t, []bool{true, true, false, false}, held(s, a), "the tail goes first")
	require.Equal(t, []bool{true, true, true}, held(s, d))
	require.InDelta(t, 6, sum(t, s, "lmcache_mp_l1_evicted_chunks_total"), 0)
	require.Equal(t, int64(5*tiny), state(t, s).Used)
}

// The start of a prompt is the last of it to leave.
func TestTheTailLeavesFirst(t *testing.T) {
	s, c := newTiers(t, Config{})
	a := c.put(1, 10)
	c.put(2, 1)
	require.Equal(t, []bool{true, true, true, true, false, false, false, false, false, false}, held(s, a))
}

func TestLockedChunksStay(t *testing.T) {
	s, c := newTiers(t, Config{})
	a := c.put(1, 4)
	require.Equal(t, 4, c.lookup(a))
	c.put(2, 4)
	c.put(3, 4)
	require.Equal(t, []bool{true, true, true, true}, held(s, a), "promised to a reader")
	require.Equal(t, 4, state(t, s).ReadLocked)
	require.Len(t, c.read(a), 4)
	require.Zero(t, state(t, s).ReadLocked)
	c.put(4, 4)
	c.put(5, 4)
	require.Equal(t, []bool{false, false, false, false}, held(s, a))
}

// Locks end with their time, and with FREE_LOOKUP_LOCKS of the same salt.
func TestLocksEnd(t *testing.T) {
	s, c := newTiers(t, Config{})
	a := c.put(1, 4)
	require.Equal(t, 4, c.lookup(a))
	free := a
	free.Worker, free.Salt = wire.NoWorker, "other"
	c.call(&wire.FreeLookupLocks{Key: free, TPSize: 1}, nil)
	require.Equal(t, 4, state(t, s).ReadLocked)
	free.Salt, free.End = "", 3*chunk
	c.call(&wire.FreeLookupLocks{Key: free, TPSize: 1}, nil)
	require.Equal(t, 1, state(t, s).ReadLocked)
	s.objects.mu.Lock()
	s.objects.now = func() time.Time { return time.Now().Add(DefaultLockTTL + time.Minute) }
	s.objects.mu.Unlock()
	require.Zero(t, state(t, s).ReadLocked)
}

// Requests whose end nobody tells are forgotten after a while.
func TestSessionsEnd(t *testing.T) {
	s, c := newTiers(t, Config{})
	old := time.Now().Add(-2 * sessionTTL)
	s.mu.Lock()
	for i := range 1023 {
		s.sessions[fmt.Sprint("old", i)] = &session{begun: old}
		s.lookups[fmt.Sprint("old", i)] = &lookup{}
	}
	s.mu.Unlock()
	require.Zero(t, c.lookup(key("new", prompt(1, chunk)...)))
	var st status
	get(t, s.URL()+"/status", &st)
	require.Equal(t, 1, st.ActiveSessions)
	require.Zero(t, st.ActivePrefetch)
}

// A lookup for several readers locks once for each.
func TestReaders(t *testing.T) {
	s, c := newTiers(t, Config{})
	a := c.put(1, 2)
	a.Readers = 2
	require.Equal(t, 2, c.lookup(a))
	c.read(a)
	require.Equal(t, 2, state(t, s).ReadLocked)
	c.read(a)
	require.Zero(t, state(t, s).ReadLocked)
}

func TestRanksAndSaltsAreApart(t *testing.T) {
	s, c := newTiers(t, Config{})
	other := connect(t, s, 2)
	e := mla
	e.WorldSize = 2
	other.registerEngine(s, e)
	k := key("a", prompt(1, chunk)...)
	k.WorldSize = 2
	other.write(k, chunkData(1, tiny))
	require.Zero(t, other.lookup(k), "rank 1 has stored nothing")
	k.Worker = 1
	other.write(k, chunkData(2, tiny))
	require.Equal(t, 1, other.lookup(k))
	require.Equal(t, [][]byte{chunkData(2, tiny)}, other.read(k))
	k.Worker = 0
	require.Equal(t, [][]byte{chunkData(1, tiny)}, other.read(k))
	require.Zero(t, c.lookup(key("b", prompt(1, chunk)...)), "of another world")
	k.Salt = "s"
	require.Zero(t, other.lookup(k))
}

// Of two clients that store the same, the second gets no places; what is not
// committed is not seen.
func TestRacingStores(t *testing.T) {
	s, c := newTiers(t, Config{})
	second := connect(t, s, 2)
	second.registerEngine(s, mla)
	k := key("a", prompt(1, 2*chunk)...)
	var p wire.PreparedStore
	c.call(&wire.PrepareStore{Key: k, Instance: 1}, &p)
	require.Equal(t, []int{0, 1}, p.Context.Chunks)
	var none wire.PreparedStore
	second.call(&wire.PrepareStore{Key: k, Instance: 2}, &none)
	require.Empty(t, none.Context.Slots)
	require.Zero(t, second.lookup(k))
	require.Nil(t, second.read(k))
	require.Equal(t, 2, state(t, s).WriteLocked)
	var ok bool
	second.call(&wire.CommitStore{Key: k, Instance: 2}, &ok)
	require.False(t, ok, "nothing was pending")
	c.call(&wire.CommitStore{Key: k, Instance: 1}, &ok)
	require.True(t, ok)
	require.Equal(t, 2, second.lookup(k))

	longer := key("b", prompt(1, 3*chunk)...)
	second.call(&wire.PrepareStore{Key: longer, Instance: 2}, &none)
	require.Equal(t, []int{2}, none.Context.Chunks)
	second.call(&wire.UnregisterEngineDriven{Instance: 2}, nil)
	require.Zero(t, state(t, s).WriteLocked, "its reservation is given back")
}

// What left L1 is found in the files, until they are damaged or gone.
func TestFilesAreServedUnverified(t *testing.T) {
	dir := t.TempDir()
	s, c := newTiers(t, Config{L2Dir: dir})
	a := c.put(1, 4)
	settled(t, s)
	code, _ := post(t, s.URL()+"/cache/clear", "", nil)
	require.Equal(t, 200, code)
	require.Zero(t, state(t, s).Objects)
	for range 2 { // reading does not bring it back into L1
		require.Equal(t, 4, c.lookup(a))
		require.Equal(t, 4, state(t, s).Temporary)
		got := c.read(a)
		require.Len(t, got, 4)
		require.Equal(t, chunkData(12, tiny), got[2])
		require.Zero(t, state(t, s).Temporary)
	}
	require.InDelta(t, 8*chunk, sum(t, s, "lmcache_mp_lookup_hit_l2_tokens_total"), 0)
	require.InDelta(t, 0, sum(t, s, "lmcache_mp_lookup_hit_l1_tokens_total"), 0)

	files, err := filepath.Glob(filepath.Join(dir, "*.data"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	damaged := rows(&a, hashChunks(a.Tokens, chunk, len(a.Tokens)), 1)[1][0].fileName()
	require.NoError(t, os.WriteFile(filepath.Join(dir, damaged), make([]byte, tiny), 0o644))
	require.Equal(t, 4, c.lookup(a))
	require.Equal(t, make([]byte, tiny), c.read(a)[1], "nothing looks at the bytes")
	require.NoError(t, os.Truncate(filepath.Join(dir, damaged), 3))
	require.Equal(t, 1, c.lookup(a), "a file of another length is no chunk")
}

// settled waits until the store controller is at rest.
func settled(t *testing.T, s *Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		var st status
		get(t, s.URL()+"/status", &st)
		return st.StorageManager.Store.Pending+st.StorageManager.Store.InFlight == 0
	}, patience, time.Millisecond)
}

// Another server finds what an earlier one has left in its L2.
func TestFilesOutliveTheServer(t *testing.T) {
	dir := t.TempDir()
	first, c := newTiers(t, Config{L2Dir: dir})
	a := c.put(1, 4)
	require.NoError(t, first.Close(t.Context()), "it writes what was stored")
	_, c = newTiers(t, Config{L2Dir: dir})
	require.Equal(t, 4, c.lookup(a))
	require.Equal(t, chunkData(10, tiny), c.read(a)[0])
}

// Chunks that leave L1 before they were written are written then.
func TestNothingIsLostOnTheWayToL2(t *testing.T) {
	release := make(chan struct{})
	s, c := newTiers(t, Config{L2Dir: t.TempDir(), L2Bytes: 12 * tiny})
	s.objects.mu.Lock()
	s.objects.beforeWrite = func() { <-release }
	s.objects.mu.Unlock()
	var keys []wire.Key
	for first := range uint32(4) {
		keys = append(keys, c.put(first+1, 4))
	}
	close(release)
	settled(t, s)
	require.Zero(t, c.lookup(keys[0]), "L2 has room for 12 chunks")
	for _, k := range keys[1:] {
		require.Equal(t, 4, c.lookup(k))
		require.Len(t, c.read(k), 4)
	}
	require.InDelta(t, 4, sum(t, s, "kvproof_store_l2_evicted_chunks_total"), 0)
	require.InDelta(t, 12*tiny, sum(t, s, "lmcache_mp_l2_usage_bytes"), 0)
}

func TestMemoryComesBack(t *testing.T) {
	m, err := newMemory(Config{L1Bytes: 100, Align: 8, NoShm: true})
	require.NoError(t, err)
	var places []place
	for _, size := range []int{3, 8, 9, 50} {
		p, ok := m.take(size)
		require.True(t, ok)
		require.Len(t, p.data, size)
		require.Zero(t, p.from%8)
		places = append(places, p)
	}
	_, ok := m.take(30)
	require.False(t, ok)
	for _, i := range []int{2, 0, 3, 1} {
		m.give(places[i])
	}
	require.Equal(t, []span{{0, 100}}, m.free)
	p, ok := m.take(100)
	require.True(t, ok)
	require.Len(t, slices.Clone(p.data), 100)
}
