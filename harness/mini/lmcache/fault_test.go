package lmcache

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// stored is a server with two prompts of three chunks each, and the client
// that stored them, in either transfer.
type storedPrompts struct {
	*client
	server *Server
	keys   [2]wire.Key
	want   [2][]byte // of three chunks
	paged  bool
}

const chunkBytes = 2 * 3 * chunk * 16 * 2 // of small

func newStored(t *testing.T, paged bool) *storedPrompts {
	t.Helper()
	s := serve(t, Config{})
	p := &storedPrompts{client: connect(t, s, 1), server: s, paged: paged}
	if paged {
		p.register("NHD", small)
	} else {
		p.registerEngine(s, wire.EngineContext{BlockSize: 4, Layers: 3, Hidden: 16, DType: "float16"})
	}
	for i := range p.keys {
		p.keys[i] = key(string(rune('a'+i)), prompt(uint32(1+i), 3*chunk)...)
		if paged {
			require.True(t, p.store(p.keys[i], sequence(1+3*i, 3)))
			p.want[i] = p.blocksOf(sequence(1+3*i, 3))
		} else {
			data := [][]byte{chunkData(byte(3*i+1), chunkBytes), chunkData(byte(3*i+2), chunkBytes), chunkData(byte(3*i+3), chunkBytes)}
			p.write(p.keys[i], data...)
			p.want[i] = bytes.Join(data, nil)
		}
		p.finds(p.keys[i], 3)
	}
	return p
}

// blocksOf is what lies in blocks, in the order of chunks.
func (p *storedPrompts) blocksOf(ids []int) []byte {
	var all []byte
	for _, id := range ids {
		for plane := range 2 {
			for _, layer := range p.layers {
				at := (plane*16 + id) * chunkBytes / 6
				all = append(all, layer.Bytes()[at:at+chunkBytes/6]...)
			}
		}
	}
	return all
}

// fetch retrieves a prompt anew; nil: it was said to be missing.
func (p *storedPrompts) fetch(i int) []byte {
	p.t.Helper()
	require.Equal(p.t, 3, p.lookup(p.keys[i]))
	if !p.paged {
		return bytes.Join(p.read(p.keys[i]), nil)
	}
	p.blank()
	if !p.retrieve(p.keys[i], sequence(9, 3)) {
		return nil
	}
	return p.blocksOf(sequence(9, 3))
}

func inBothTransfers(t *testing.T, f func(t *testing.T, p *storedPrompts)) {
	t.Helper()
	for name, paged := range map[string]bool{LMCacheDriven: true, EngineDriven: false} {
		t.Run(name, func(t *testing.T) { f(t, newStored(t, paged)) })
	}
}

// Damage is in what is delivered, and healed by Clear.
func TestFaultsOnData(t *testing.T) {
	piece := func(b []byte, i int) []byte { return b[i*chunkBytes : (i+1)*chunkBytes] }
	for _, test := range []struct {
		fault Fault
		check func(t *testing.T, p *storedPrompts, got []byte)
	}{
		{CorruptByte, func(t *testing.T, p *storedPrompts, got []byte) {
			differing := 0
			for i := range got {
				if got[i] != p.want[0][i] {
					differing++
				}
			}
			require.Equal(t, 1, differing)
			require.NotEqual(t, piece(p.want[0], 1), piece(got, 1), "in the middle chunk")
		}},
		{StaleChunk, func(t *testing.T, p *storedPrompts, got []byte) {
			require.Equal(t, p.want[0][:2*chunkBytes], got[:2*chunkBytes])
			require.True(t, bytes.Contains(p.want[1], piece(got, 2)), "a chunk of the other prompt")
		}},
		{SwappedChunks, func(t *testing.T, p *storedPrompts, got []byte) {
			require.Equal(t, piece(p.want[0], 1), piece(got, 0))
			require.Equal(t, piece(p.want[0], 0), piece(got, 1))
			require.Equal(t, piece(p.want[0], 2), piece(got, 2))
		}},
		{HitWithoutData, func(t *testing.T, p *storedPrompts, got []byte) {
			pattern := byte(0)
			if p.paged {
				pattern = 0xa5
			}
			require.Equal(t, bytes.Repeat([]byte{pattern}, len(got)), got)
		}},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
				require.Equal(t, p.want[0], p.fetch(0))
				require.NoError(t, p.server.Plant(test.fault))
				require.Equal(t, []Fault{test.fault}, p.server.Planted())
				got := p.fetch(0)
				require.Len(t, got, len(p.want[0]))
				test.check(t, p, got)
				p.server.Clear(test.fault)
				require.Equal(t, p.want[0], p.fetch(0))
				require.Zero(t, state(t, p.server).ReadLocked)
			})
		})
	}
}

func TestLeakedLock(t *testing.T) {
	inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
		require.NoError(t, p.server.Plant(LeakedLock))
		require.Equal(t, p.want[1], p.fetch(1))
		require.Equal(t, 3, state(t, p.server).ReadLocked)
	})
}

func TestNoReply(t *testing.T) {
	inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
		require.NoError(t, p.server.Plant(NoReply))
		require.Equal(t, 3, p.lookup(p.keys[0]))
		if p.paged {
			p.ignored(&wire.Retrieve{Key: p.keys[0], Instance: 1, Blocks: [][]int{sequence(9, 3)}})
		} else {
			p.ignored(&wire.PrepareRetrieve{Key: p.keys[0], Instance: 1})
		}
	})
}

func TestWrongArity(t *testing.T) {
	inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
		require.NoError(t, p.server.Plant(WrongArity))
		require.Equal(t, 3, p.lookup(p.keys[0]))
		var r wire.Request = &wire.PrepareRetrieve{Key: p.keys[0], Instance: 1}
		if p.paged {
			r = &wire.Retrieve{Key: p.keys[0], Instance: 1, Blocks: [][]int{sequence(9, 3)}}
		}
		_, err := p.dealer.Call(t.Context(), r, wire.NewResult(r))
		require.ErrorContains(t, err, "4 frames")
	})
}

func TestDuplicateReply(t *testing.T) {
	p := newStored(t, false)
	require.NoError(t, p.server.Plant(DuplicateReply))
	require.Equal(t, p.want[0], p.fetch(0))
	var ok string
	p.call(&wire.Noop{}, &ok)
	require.NotEmpty(t, p.dealer.Strays())
	require.Empty(t, p.dealer.Strays()[0].Late, "answered before")
}

// Replies overtake each other, and each one reaches its call all the same.
func TestOutOfOrder(t *testing.T) {
	p := newStored(t, false)
	require.NoError(t, p.server.Plant(OutOfOrder))
	conn, err := wire.Dial(t.Context(), p.server.Endpoint())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	lookup := p.keys[0]
	lookup.Worker = wire.NoWorker
	for uid := range uint64(2) {
		frames, err := p.server.Dialect().EncodeRequest(uid, &wire.Lookup{Key: lookup, TPSize: 1})
		require.NoError(t, err)
		require.NoError(t, conn.Send(frames))
	}
	var order []byte
	for range 2 {
		frames, err := conn.Receive()
		require.NoError(t, err)
		order = append(order, frames[0]...)
	}
	require.Equal(t, []byte{1, 0}, order)
	require.Equal(t, p.want[0], p.fetch(0), "one that is alone comes after a moment")
}

func TestSlowReply(t *testing.T) {
	p := newStored(t, false)
	require.NoError(t, p.server.Plant(SlowReply))
	lookup := p.keys[0]
	lookup.Worker = wire.NoWorker
	ctx, cancel := context.WithTimeout(t.Context(), slowness/3)
	defer cancel()
	_, err := p.dealer.Call(ctx, &wire.Lookup{Key: lookup, TPSize: 1}, nil)
	requireTimeout(t, err)
	require.Equal(t, p.want[0], p.fetch(0), "late, but right")
}

func TestUnregisterMidFlight(t *testing.T) {
	inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
		require.NoError(t, p.server.Plant(UnregisterMidFlight))
		require.Equal(t, 3, p.lookup(p.keys[0]))
		if p.paged {
			require.False(t, p.retrieve(p.keys[0], sequence(9, 3)))
		} else {
			p.ignored(&wire.PrepareRetrieve{Key: p.keys[0], Instance: 1})
		}
		require.Empty(t, p.server.Planted(), "it strikes once")
	})
}

// Death and restart wait for a store, so that they come between a cold and a
// warm pass.
func TestDieAndRestart(t *testing.T) {
	for _, f := range []Fault{Die, Restart} {
		t.Run(string(f), func(t *testing.T) {
			inBothTransfers(t, func(t *testing.T, p *storedPrompts) {
				require.NoError(t, p.server.Plant(f))
				require.Equal(t, p.want[0], p.fetch(0), "nothing was stored since")
				k := key("c", prompt(9, chunk)...)
				if p.paged {
					require.True(t, p.store(k, []int{1}))
					require.Eventually(t, func() bool { return state(t, p.server).Objects == 7 }, patience, time.Millisecond)
				} else {
					p.write(k, chunkData(1, chunkBytes))
				}
				k.Worker = wire.NoWorker
				_, err := p.dealer.Call(t.Context(), &wire.Lookup{Key: k, TPSize: 1}, nil)
				var lost *wire.LostError
				require.ErrorAs(t, err, &lost)
				if f == Die {
					require.Error(t, p.dealer.Connect(t.Context()), "its port is closed")
					require.True(t, p.server.Dead())
					return
				}
				require.Zero(t, p.lookup(k), "nobody is registered")
				require.Zero(t, state(t, p.server).Objects)
				_, page := get(t, p.server.URL()+"/metrics", nil)
				require.Contains(t, page, `lmcache_mp_lookups_requests_total{cache_salt="",model_name="test-model"} 1`)
			})
		})
	}
}

func TestFaultsAreAClosedList(t *testing.T) {
	parsed, err := ParseFaults("corrupt-byte, die")
	require.NoError(t, err)
	require.Equal(t, []Fault{CorruptByte, Die}, parsed)
	_, err = ParseFaults("nope")
	require.ErrorContains(t, err, `fault "nope" of the cache server is not known; there are corrupt-byte, `)
	_, err = ParseFaults("die,die")
	require.ErrorContains(t, err, "named twice")
	for _, f := range Faults() {
		require.NotEmpty(t, f.About())
	}
	s := serve(t, Config{Faults: []Fault{SlowReply}})
	require.Error(t, s.Plant("nope"))
	require.Equal(t, []Fault{SlowReply}, s.Planted())
	s.Clear()
	require.Empty(t, s.Planted())
}
