package lmcache

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

var small = spec{shape: []int{2, 16, 4, 2, 8}, dtype: "float16", layers: 3}

// What a retrieve puts into other blocks is what a store took out of the first
// ones, in every format, and nothing else is touched.
func TestRoundTripThroughTheClientsMemory(t *testing.T) {
	for _, test := range []struct {
		name   string
		hint   string
		groups []spec
		blocks int // per chunk
	}{
		{"NHD", "NHD", []spec{small}, 1},
		{"HND", "HND", []spec{{shape: []int{2, 16, 2, 4, 8}, dtype: "float32", layers: 2}}, 1},
		{"MLA", "NHD", []spec{{shape: []int{16, 4, 16}, dtype: "bfloat16", layers: 2}}, 1},
		{"blocks in front", "NHD", []spec{{shape: []int{16, 2, 4, 2, 8}, dtype: "uint8", layers: 2}}, 1},
		{"K and V side by side", "NHD", []spec{{shape: []int{16, 4, 2, 16}, dtype: "float16", layers: 2}}, 1},
		{"K and V side by side, HND", "HND", []spec{{shape: []int{16, 2, 4, 16}, dtype: "float16", layers: 2}}, 1},
		{"two blocks a chunk", "NHD", []spec{{shape: []int{2, 16, 2, 2, 8}, dtype: "float16", layers: 2}}, 2},
		{"blocks of two tensor blocks", "NHD", []spec{{shape: []int{2, 32, 2, 2, 8}, dtype: "float16", layers: 2, tokens: 4}}, 1},
		{"more heads than tokens", "NHD", []spec{{shape: []int{2, 16, 4, 8, 8}, dtype: "float16", layers: 1}}, 1},
		{"groups", "NHD", []spec{{shape: []int{2, 16, 4, 1, 8}, dtype: "float16", layers: 2}, {shape: []int{2, 16, 4, 2, 8}, dtype: "float16", layers: 1}}, 1},
	} {
		for _, separate := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				s := serve(t, Config{Separate: separate})
				c := connect(t, s, 7)
				c.register(test.hint, test.groups...)
				k := key("r", prompt(1, 3*chunk+1)...)
				var from, to [][]int
				for range test.groups {
					from, to = append(from, sequence(1, 3*test.blocks)), append(to, sequence(9, 3*test.blocks))
				}
				require.Zero(t, c.lookup(k))
				require.True(t, c.store(k, from...))
				stored := c.contents()
				c.finds(k, 3)
				require.Equal(t, 3, c.lookup(k))
				c.blank()
				require.True(t, c.retrieve(k, to...))
				require.Zero(t, state(t, s).ReadLocked)
				got := c.contents()
				require.Equal(t, digestsOf(t, s, c, to[0], test.blocks), expectedDigests(s, c, stored, from[0], test.blocks))
				c.blank()
				require.Equal(t, 3, c.lookup(k))
				require.True(t, c.retrieve(k, from...))
				requireOnly(t, s, c, stored, from[0])
				require.NotEqual(t, got, c.contents())
			})
		}
	}
}

func sequence(first, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = first + i
	}
	return ids
}

// views are the layers of a client as the server sees them, over other bytes.
func viewsOver(s *Server, c *client, contents [][]byte) []*view {
	s.mu.Lock()
	defer s.mu.Unlock()
	var views []*view
	for i, v := range s.paged[c.instance].layers {
		over := *v
		over.bytes = contents[i]
		views = append(views, &over)
	}
	return views
}

func kernelBlocks(s *Server, c *client, ids []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.paged[c.instance].groups[0]
	per := g.tokens / g.layers[0].slots
	var blocks []int
	for _, id := range ids {
		for i := range per {
			blocks = append(blocks, id*per+i)
		}
	}
	return blocks
}

func digestsOf(t *testing.T, s *Server, c *client, ids []int, perChunk int) []string {
	t.Helper()
	return expectedDigests(s, c, c.contents(), ids, perChunk)
}

func expectedDigests(s *Server, c *client, contents [][]byte, ids []int, perChunk int) []string {
	blocks := kernelBlocks(s, c, ids)
	return digests(viewsOver(s, c, contents), blocks, perChunk*len(blocks)/len(ids))
}

// requireOnly checks that the blocks hold what was stored and all others the
// pattern: each byte is one or the other, and as many differ from the pattern
// as the blocks hold.
func requireOnly(t *testing.T, s *Server, c *client, stored [][]byte, ids []int) {
	t.Helper()
	require.Equal(t, expectedDigests(s, c, stored, ids, 1), digestsOf(t, s, c, ids, 1))
	inside := map[int]bool{}
	for _, block := range kernelBlocks(s, c, ids) {
		inside[block] = true
	}
	for _, v := range viewsOver(s, c, c.contents()) {
		for block := range v.blocks {
			b := v.gather([]int{block})
			if v.dtype != "bfloat16" && !inside[block] {
				require.Equal(t, bytes.Repeat([]byte{0xa5}, len(b)), b, "block %d was touched", block)
			}
		}
	}
}

// The chunk in L1 is [K or V][layer][token][heads*size] whichever transfer
// wrote it, so either can read what the other has stored.
func TestTransfersShareTheirChunks(t *testing.T) {
	s := serve(t, Config{})
	paged, engine := connect(t, s, 1), connect(t, s, 2)
	paged.register("NHD", small)
	engine.registerEngine(s, wire.EngineContext{BlockSize: 4, Layers: 3, Hidden: 16, DType: "float16"})
	const tokenBytes = 16 * 2

	k := key("a", prompt(1, 2*chunk)...)
	require.True(t, paged.store(k, []int{3, 5}))
	paged.finds(k, 2)
	require.Equal(t, 2, engine.lookup(k))
	got := engine.read(k)
	require.Len(t, got, 2)
	for c, block := range []int{3, 5} {
		var want []byte
		for plane := range 2 {
			for _, layer := range paged.layers {
				at := (plane*16 + block) * 4 * tokenBytes
				want = append(want, layer.Bytes()[at:at+4*tokenBytes]...)
			}
		}
		require.Equal(t, want, got[c])
	}

	k = key("b", prompt(2, 2*chunk)...)
	require.Equal(t, 2, engine.write(k, chunkData(1, len(got[0])), chunkData(2, len(got[0]))))
	require.Equal(t, 2, paged.lookup(k), "readable at once")
	require.True(t, paged.retrieve(k, []int{7, 8}))
	first := chunkData(1, len(got[0]))
	require.Equal(t, first[:4*tokenBytes], paged.layers[0].Bytes()[7*4*tokenBytes:8*4*tokenBytes])
}

func TestSkippedTokensAreLeftAlone(t *testing.T) {
	s := serve(t, Config{})
	c := connect(t, s, 1)
	c.register("NHD", small)
	k := key("a", prompt(1, 2*chunk)...)
	require.True(t, c.store(k, []int{1, 2}))
	c.finds(k, 2)
	require.Equal(t, 2, c.lookup(k))
	want := c.contents()
	c.blank()
	var answer wire.Transfer
	c.call(&wire.Retrieve{Key: k, Instance: 1, Blocks: [][]int{{1, 2}}, Skip: 5}, &answer)
	require.True(t, answer.OK)
	const tokenBytes = 16 * 2
	for _, plane := range []int{0, 16} {
		at := (plane + 1) * 4 * tokenBytes
		require.Equal(t, bytes.Repeat([]byte{0xa5}, 5*tokenBytes), c.layers[0].Bytes()[at:at+5*tokenBytes])
		require.Equal(t, want[0][at+5*tokenBytes:at+8*tokenBytes], c.layers[0].Bytes()[at+5*tokenBytes:at+8*tokenBytes])
	}
}

func TestTheNullBlockIsNotStored(t *testing.T) {
	c := Config{Chunk: chunk, L1Bytes: 1 << 20, HTTPAddr: "127.0.0.1:0"} // the null block is 0
	s, err := Start(t.Context(), c)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(t.Context())) }()
	client := connect(t, s, 1)
	client.register("NHD", small)
	k := key("a", prompt(1, 2*chunk)...)
	require.True(t, client.store(k, []int{0, 1}), "it says that it succeeded")
	require.Eventually(t, func() bool { return state(t, s).Objects == 1 }, patience, time.Millisecond)
	require.Zero(t, client.lookup(k))
}

// STORE answers before its chunks are readable.
func TestStoresBecomeReadableLater(t *testing.T) {
	s := serve(t, Config{})
	release := make(chan struct{})
	s.visible.mu.Lock()
	s.visible.before = func() { <-release }
	s.visible.mu.Unlock()
	c := connect(t, s, 1)
	c.register("NHD", small)
	k := key("a", prompt(1, chunk)...)
	require.True(t, c.store(k, []int{1}))
	require.Zero(t, c.lookup(k))
	var st status
	get(t, s.URL()+"/status", &st)
	require.Equal(t, 1, st.StorageManager.Store.Pending+st.StorageManager.Store.InFlight)
	require.Equal(t, 1, st.StorageManager.L1.WriteLocked)
	close(release)
	c.finds(k, 1)
	require.Zero(t, state(t, s).WriteLocked)
}

// Close writes what it makes readable to L2, however late that is.
func TestCloseWritesWhatBecomesReadableLast(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, Config{L2Dir: dir})
	s.visible.mu.Lock()
	s.visible.before = func() {
		for ended := false; !ended; runtime.Gosched() {
			s.visible.mu.Lock()
			ended = s.visible.closed
			s.visible.mu.Unlock()
		}
		for range 100_000 { // Close has the time to go on, if it does
			runtime.Gosched()
		}
	}
	s.visible.mu.Unlock()
	c := connect(t, s, 1)
	c.register("NHD", small)
	require.True(t, c.store(key("a", prompt(1, chunk)...), []int{1}))
	require.NoError(t, s.Close(t.Context()))
	files, err := filepath.Glob(filepath.Join(dir, "*.data"))
	require.NoError(t, err)
	require.Len(t, files, 1)
}
