package lmcmp

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

const chunk = 8

func startServer(t *testing.T, config lmcache.Config) (*lmcache.Server, *Server) {
	t.Helper()
	config.Chunk, config.HTTPAddr, config.TransferWorkers, config.Workers, config.L1Bytes = chunk, "127.0.0.1:0", 4, 4, 16<<20
	mini, err := lmcache.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mini.Close(context.WithoutCancel(t.Context()))) })
	s, err := Discover(t.Context(), Endpoints{mini.Endpoint(), mini.URL()}, "")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return mini, s
}

func connect(t *testing.T, s *Server, shape string, config Config) *Client {
	t.Helper()
	var err error
	config.Shape, err = ParseShape(shape)
	require.NoError(t, err)
	c, err := s.Connect(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(t.Context())) })
	return c
}

func prompt(id string, first uint32) Request {
	r := Request{ID: id, Tokens: make([]uint32, 2*chunk+3)}
	for i := range r.Tokens {
		r.Tokens[i] = first + uint32(i)
	}
	return r
}

// lookup asks until that many chunks are found.
func lookup(t *testing.T, c *Client, r Request, chunks int) Request {
	t.Helper()
	name := r.ID
	for try := 0; ; try++ {
		r.ID = fmt.Sprintf("%s-%d", name, try)
		found, _, err := c.Lookup(t.Context(), r)
		require.NoError(t, err)
		if found == chunks {
			return r
		}
		require.NoError(t, c.Free(t.Context(), r))
		require.NoError(t, c.End(t.Context(), r))
		require.NoError(t, t.Context().Err())
	}
}

// TestEveryRelease takes a prompt through a server of every release that is
// known, in both transfers: found by its version, its bytes come back, locks are
// released, and the server's checksums are ours.
func TestEveryRelease(t *testing.T) {
	for _, version := range wire.Versions() {
		for _, transfer := range []Transfer{EngineDriven, LMCacheDriven} {
			t.Run(version+"/"+string(transfer), func(t *testing.T) {
				_, s := startServer(t, lmcache.Config{Version: version})
				require.Equal(t, version, s.Dialect.Version)
				require.Equal(t, chunk, s.Chunk)
				c := connect(t, s, "(2,32,4,2,8):float16:3", Config{Transfer: transfer})
				r, content := prompt("cold", 100), Content{Seed: 1}
				found, _, err := c.Lookup(t.Context(), r)
				require.NoError(t, err)
				require.Zero(t, found)
				stored, other := []int{4, 5, 9, 2}, []int{20, 11, 12, 30}
				require.NoError(t, c.Write(stored, content))
				timing, err := c.Store(t.Context(), r, 0, 2, stored)
				require.NoError(t, err)
				require.Equal(t, 2, timing.Chunks)
				require.Equal(t, 2*chunk*2*3*2*8*2, timing.Bytes)
				require.NoError(t, c.End(t.Context(), r))

				r = lookup(t, c, prompt("warm", 100), 2)
				require.NoError(t, c.Poison(other))
				before, err := c.Verify(other, content)
				require.NoError(t, err)
				require.Equal(t, "not written at all", before[0].Looks)
				_, err = c.Retrieve(t.Context(), r, 0, 2, other)
				require.NoError(t, err)
				mismatches, err := c.Verify(other, content)
				require.NoError(t, err)
				require.Empty(t, mismatches)
				require.NoError(t, c.End(t.Context(), r))
				if transfer == LMCacheDriven {
					sums, err := c.ServerSumsDiffer(t.Context(), other)
					require.NoError(t, err)
					require.Equal(t, Agree, sums)
				}
				status, err := s.Status(t.Context())
				require.NoError(t, err)
				require.Zero(t, status.ReadLocks)
				require.Empty(t, c.Strays())
			})
		}
	}
}

// TestReleaseIsFoundByPings alone, and nothing in the cache changes on the way.
func TestReleaseIsFoundByPings(t *testing.T) {
	for _, version := range []string{"0.4.7", "0.5.2", "0.5.5", "0.5.6"} {
		t.Run(version, func(t *testing.T) {
			_, full := startServer(t, lmcache.Config{Version: version})
			c := connect(t, full, "(2,32,4,2,8):float16:1", Config{Transfer: EngineDriven})
			blocks := []int{1, 2, 3, 4}
			require.NoError(t, c.Write(blocks, Content{Seed: 1}))
			_, err := c.Store(t.Context(), prompt("store", 1), 0, 2, blocks)
			require.NoError(t, err)

			found, err := Discover(t.Context(), Endpoints{RPC: full.RPC}, "")
			require.NoError(t, err)
			require.Equal(t, version, found.Dialect.Version)
			require.Equal(t, chunk, found.Chunk)
			r := lookup(t, c, prompt("still", 1), 2)
			require.NoError(t, c.Free(t.Context(), r))
		})
	}
}

// TestSubRanges stores and retrieves a prompt in pieces, in any order of them.
func TestSubRanges(t *testing.T) {
	_, s := startServer(t, lmcache.Config{})
	for i, transfer := range []Transfer{EngineDriven, LMCacheDriven} {
		t.Run(string(transfer), func(t *testing.T) {
			c := connect(t, s, "(2,64,4,2,8):float32:2", Config{Transfer: transfer, Salt: fmt.Sprint(i)})
			r := Request{ID: "pieces", Tokens: make([]uint32, 4*chunk)}
			blocks := []int{1, 2, 3, 4, 5, 6, 7, 8}
			require.NoError(t, c.Write(blocks, Content{Seed: 3}))
			for _, piece := range [][2]int{{0, 1}, {1, 3}, {3, 4}} {
				_, err := c.Store(t.Context(), r, piece[0], piece[1], blocks[2*piece[0]:2*piece[1]])
				require.NoError(t, err)
			}
			require.NoError(t, c.End(t.Context(), r))
			r = lookup(t, c, r, 4)
			to := []int{30, 31, 40, 41, 20, 21, 50, 51}
			require.NoError(t, c.Poison(to))
			_, err := c.Retrieve(t.Context(), r, 1, 3, to[2:6])
			require.NoError(t, err)
			mismatches, err := c.Verify(to[2:6], Content{Seed: 3, First: 2})
			require.NoError(t, err)
			require.Empty(t, mismatches)
			untouched, err := c.Verify(to[:2], Content{Seed: 3})
			require.NoError(t, err)
			require.Equal(t, "not written at all", untouched[0].Looks)
		})
	}
}

// TestNothingThatWouldBeDroppedIsSent: it is refused with a reason instead.
func TestNothingThatWouldBeDroppedIsSent(t *testing.T) {
	_, s := startServer(t, lmcache.Config{})
	c := connect(t, s, "(2,32,4,2,8):float16:1", Config{Transfer: LMCacheDriven})
	r := prompt("r", 1)
	for _, test := range []struct {
		name   string
		from   int
		to     int
		blocks []int
		want   string
	}{
		{"past the whole chunks", 0, 3, make([]int, 6), "chunks [0, 3)"},
		{"nothing", 1, 1, nil, "chunks [1, 1)"},
		{"too few blocks", 0, 2, []int{1, 2, 3}, "want 4"},
		{"the null block", 0, 1, []int{0, 1}, "the null block"},
		{"a block twice", 0, 1, []int{3, 3}, "distinct"},
		{"no such block", 0, 1, []int{31, 32}, "from 1 to 31"},
	} {
		_, err := c.Store(t.Context(), r, test.from, test.to, test.blocks)
		require.ErrorContains(t, err, test.want, test.name)
		_, err = c.Retrieve(t.Context(), r, test.from, test.to, test.blocks)
		require.ErrorContains(t, err, test.want, test.name)
	}
	_, _, err := c.Lookup(t.Context(), Request{Tokens: r.Tokens})
	require.ErrorContains(t, err, "the request id is empty")
	_, err = s.Connect(t.Context(), Config{Shape: c.config.Shape, Transfer: "data"})
	require.ErrorContains(t, err, `transfer "data"`)
	odd, err := ParseShape("(2,32,3,2,8):float16:1")
	require.NoError(t, err)
	_, err = s.Connect(t.Context(), Config{Shape: odd})
	require.ErrorContains(t, err, "not a multiple of the block size 3")
}

// TestSharedMemoryHasNoNameOnceRegistered: whatever ends this process, nothing
// is left behind.
func TestSharedMemoryHasNoNameOnceRegistered(t *testing.T) {
	_, s := startServer(t, lmcache.Config{})
	c := connect(t, s, "(2,32,4,2,8):float16:3", Config{Transfer: LMCacheDriven, Workers: 2})
	require.Len(t, c.Instances(), 2)
	own, err := shm.Own()
	require.NoError(t, err)
	require.Empty(t, own)
}

// A transfer that the server does not offer is an error, and the client that
// could not start leaves nothing at the server.
func TestNoOtherTransferIsTaken(t *testing.T) {
	_, s := startServer(t, lmcache.Config{Transfer: lmcache.LMCacheDriven})
	shape, err := ParseShape("(2,32,4,2,8):float16:1")
	require.NoError(t, err)
	_, err = s.Connect(t.Context(), Config{Shape: shape, Transfer: EngineDriven})
	require.ErrorIs(t, err, ErrTransfer)
	for _, c := range []struct {
		transfer Transfer
		gpu      bool
		want     Transfer
	}{{Auto, true, LMCacheDriven}, {LMCacheDriven, false, LMCacheDriven}} {
		got, err := s.Resolve(c.transfer, c.gpu)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err = s.Resolve(Auto, false)
	require.ErrorIs(t, err, ErrTransfer, "auto is engine_driven on a CPU, as upstream's clients choose")
}

// TestLooks names what damage looks like.
func TestLooks(t *testing.T) {
	shape, err := ParseShape("(2,16,4,2,8):float16:2")
	require.NoError(t, err)
	m, err := NewHostMemory(shape, false)
	require.NoError(t, err)
	blocks, content := []int{1, 2, 3, 4}, Content{Seed: 7}
	for _, c := range []struct {
		looks  string
		damage func()
	}{
		{"one bit flipped", func() { m.layers[1].block(1, 3)[17] ^= 4 }},
		{"damaged in part", func() { clear(m.layers[1].block(1, 3)[64:]) }},
		{"all zero", func() { clear(m.layers[1].block(1, 3)) }},
		{"not written at all", func() { poison(m.layers[1].block(1, 3)) }},
		{"the bytes of another block of this prompt", func() { copy(m.layers[1].block(1, 3), m.layers[1].block(1, 2)) }},
		{"the other plane's bytes", func() { copy(m.layers[1].block(1, 3), m.layers[1].block(0, 3)) }},
		{"other content: stale, or of another prompt", func() { patternOf(Content{Seed: 8}, 1, 1, 2).fill(m.layers[1].block(1, 3)) }},
	} {
		t.Run(c.looks, func(t *testing.T) {
			_, err := m.Write(blocks, content)
			require.NoError(t, err)
			found, err := m.Verify(blocks, content)
			require.NoError(t, err)
			require.Empty(t, found)
			c.damage()
			found, err = m.Verify(blocks, content)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, c.looks, found[0].Looks)
			require.Equal(t, [4]int{1, 1, 2, 3}, [4]int{found[0].Layer, found[0].Plane, found[0].Position, found[0].Block})
		})
	}
}

func TestCopyLimitLeavesNothing(t *testing.T) {
	limit, err := CopyLimit(3 << 20)
	require.NoError(t, err)
	require.Positive(t, limit)
	own, err := shm.Own()
	require.NoError(t, err)
	require.Empty(t, own)
}
