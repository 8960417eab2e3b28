package gpukv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/row"
)

const chunk = 8

// config is a run over device memory.
func config(t *testing.T, driver *cuda.Driver, spec string) cachebench.Config {
	t.Helper()
	shape, err := lmcmp.ParseShape(spec)
	require.NoError(t, err)
	return cachebench.Config{
		Shape: shape, Tokens: 3*chunk + 1, Requests: 4, Clients: 2, Patience: 30 * time.Second,
		GPU: true, NewMemory: func(_, worker int) (lmcmp.Memory, error) { return New(driver, worker, shape) },
	}
}

// Device memory goes through a cache server in another process and comes back:
// written, stored behind an event, poisoned, retrieved into other blocks, waited
// for, compared on the device.
func TestRoundTrip(t *testing.T) {
	s, driver := useStandIn(t)
	server, _ := startServer(t, served{Library: s.Library, StandIn: true, Chunk: chunk})
	for i, spec := range []string{"(2,64,4,2,8):float16:3", "(1,64,4,1,9):bfloat16:2", "(2,64,4,1,5):uint8:2;(2,64,4,1,6):float16:1"} {
		opened := s.Calls("cuIpcOpenEventHandle")
		checkRoundTrip(t, driver, server, spec, 100*i)
		require.GreaterOrEqual(t, s.Calls("cuIpcOpenEventHandle")-opened, int32(8), "the server's event is waited for, of every store and retrieve")
	}
}

func checkRoundTrip(t *testing.T, driver *cuda.Driver, server *lmcmp.Server, spec string, start int) {
	t.Helper()
	c := config(t, driver, spec)
	c.Start, c.Salt = start, spec
	result, err := cachebench.Run(t.Context(), server, c)
	require.NoError(t, err)
	require.Empty(t, result.Findings)
	require.True(t, result.Valid())
	require.Equal(t, 4, result.ChecksumOK)
	require.Equal(t, 4*3*chunk, result.Hit)
}

// Two workers hold different KV on devices of their own.
func TestTwoWorkers(t *testing.T) {
	s, driver := useStandIn(t)
	server, _ := startServer(t, served{Library: s.Library, StandIn: true, Chunk: chunk})
	c := config(t, driver, "(2,64,4,2,8):float16:2")
	c.Workers, c.Clients, c.Requests = 2, 1, 2
	result, err := cachebench.Run(t.Context(), server, c)
	require.NoError(t, err)
	require.Empty(t, result.Findings)
	require.Equal(t, 2, result.ChecksumOK)
}

// What a server gets wrong on the way is found, and says what it looks like.
func TestFaults(t *testing.T) {
	s, driver := useStandIn(t)
	for _, c := range []struct {
		fault    lmcache.Fault
		evidence string
	}{
		{lmcache.CorruptByte, "chunk 1"},
		{lmcache.StaleChunk, "chunk 2"},
		{lmcache.SwappedChunks, "the bytes of another block of this prompt"},
		{lmcache.HitWithoutData, "not written at all"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			server, _ := startServer(t, served{Library: s.Library, StandIn: true, Chunk: chunk, Faults: []lmcache.Fault{c.fault}})
			config := config(t, driver, "(2,64,4,2,8):float16:2")
			config.Clients, config.Requests = 1, 1
			result, err := cachebench.Run(t.Context(), server, config)
			require.NoError(t, err)
			require.False(t, result.Valid())
			require.Len(t, result.Findings, 1)
			require.Equal(t, row.KVDiffers, result.Findings[0].Code)
			require.Contains(t, result.Findings[0].Evidence, c.evidence)
		})
	}
}

// held is memory that tells a server to carry the copies of a retrieve out when
// somebody waits for them; or does not wait.
type held struct {
	*Memory
	send       func()
	waits      bool
	retrieving bool
}

func (h *held) Wait(event []byte) error {
	if h.retrieving && !h.waits {
		return nil
	}
	if h.retrieving {
		h.send()
	}
	return h.Memory.Wait(event)
}

// The server's reply comes before its copies are done: whoever does not wait
// for its event compares blocks that are still poisoned, and whoever waits
// compares right ones.
func TestWaitingIsForTheCopies(t *testing.T) {
	s, driver := useStandIn(t)
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprintf("waits=%v", waits), func(t *testing.T) {
			server, send := startServer(t, served{Library: s.Library, StandIn: true, Chunk: chunk, Held: true})
			shape, err := lmcmp.ParseShape("(2,32,4,2,8):float16:1")
			require.NoError(t, err)
			var memory *held
			client, err := server.Connect(t.Context(), lmcmp.Config{
				Shape: shape, GPU: true, Transfer: lmcmp.LMCacheDriven, Patience: 30 * time.Second,
				NewMemory: func(worker int) (lmcmp.Memory, error) {
					m, err := New(driver, worker, shape)
					memory = &held{Memory: m, send: send, waits: waits}
					return memory, err
				},
			})
			require.NoError(t, err)
			content, request := lmcmp.Content{Seed: 9}, lmcmp.Request{ID: "r", Tokens: make([]uint32, chunk)}
			require.NoError(t, client.Write([]int{1, 2}, content))
			_, err = client.Store(t.Context(), request, 0, 1, []int{1, 2})
			require.NoError(t, err)
			for hits := 0; hits == 0; {
				hits, _, err = client.Lookup(t.Context(), request)
				require.NoError(t, err)
			}
			require.NoError(t, client.Poison([]int{5, 7}))
			memory.retrieving = true
			_, err = client.Retrieve(t.Context(), request, 0, 1, []int{5, 7})
			require.NoError(t, err)
			found, err := client.Verify([]int{5, 7}, content)
			require.NoError(t, err)
			if waits {
				require.Empty(t, found)
			} else {
				require.Len(t, found, 4)
				for _, m := range found {
					require.Equal(t, "not written at all", m.Looks)
				}
				send() // unregistering waits for the copies
			}
			require.NoError(t, client.Close(t.Context()))
		})
	}
}

// impatient is memory that does not wait until it is told to.
type impatient struct {
	*Memory
	waits bool
}

func (m *impatient) Wait(event []byte) error {
	if !m.waits {
		return nil
	}
	return m.Memory.Wait(event)
}

// The server waits for the event behind the client's writes: before it has come
// a store is not answered, and after it what is stored is right.
func TestServerWaitsForTheWrites(t *testing.T) {
	s, driver := useStandIn(t)
	server, _ := startServer(t, served{Library: s.Library, StandIn: true, Chunk: chunk})
	shape, err := lmcmp.ParseShape("(2,32,4,2,8):float16:1")
	require.NoError(t, err)
	var memory *impatient
	client, err := server.Connect(t.Context(), lmcmp.Config{
		Shape: shape, GPU: true, Transfer: lmcmp.LMCacheDriven, Patience: time.Second,
		NewMemory: func(worker int) (lmcmp.Memory, error) {
			m, err := New(driver, worker, shape)
			memory = &impatient{Memory: m}
			return memory, err
		},
	})
	require.NoError(t, err)
	content, request := lmcmp.Content{Seed: 9}, lmcmp.Request{ID: "r", Tokens: make([]uint32, chunk)}
	require.NoError(t, client.Write([]int{1, 2}, content))
	_, err = client.Store(t.Context(), request, 0, 1, []int{1, 2})
	require.True(t, wire.IsTimeout(err), "%v", err)
	memory.waits = true
	require.NoError(t, memory.Wait(memory.handle.Data[:]))
	for hits := 0; hits == 0; {
		hits, _, err = client.Lookup(t.Context(), request)
		require.NoError(t, err)
	}
	require.NoError(t, client.Poison([]int{5, 7}))
	_, err = client.Retrieve(t.Context(), request, 0, 1, []int{5, 7})
	require.NoError(t, err)
	found, err := client.Verify([]int{5, 7}, content)
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoError(t, client.Close(t.Context()))
}

// A server without a GPU does not take device memory, and says why in its log.
func TestServerWithoutAGPU(t *testing.T) {
	_, driver := useStandIn(t)
	var log strings.Builder
	mini, err := lmcache.Start(t.Context(), lmcache.Config{Chunk: chunk, HTTPAddr: "127.0.0.1:0", Log: &log})
	require.NoError(t, err)
	server, err := lmcmp.Discover(t.Context(), lmcmp.Endpoints{RPC: mini.Endpoint(), HTTP: mini.URL()}, "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	c := config(t, driver, "(2,64,4,2,8):float16:1")
	c.Clients, c.Patience = 1, 300*time.Millisecond
	_, err = cachebench.Run(t.Context(), server, c)
	require.ErrorContains(t, err, "registering instance")
	require.NoError(t, mini.Close(t.Context()))
	require.Contains(t, log.String(), `of kind "cuda_raw": this server has no GPU`)
}
