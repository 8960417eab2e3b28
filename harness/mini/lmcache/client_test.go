package lmcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

const (
	chunk    = 4
	patience = 20 * time.Second
	// silence is how long a test waits for an answer that must not come.
	silence = 200 * time.Millisecond
)

func serve(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Chunk == 0 {
		c.Chunk = chunk
	}
	if c.L1Bytes == 0 {
		c.L1Bytes = 1 << 20
	}
	if c.NullBlock == 0 {
		c.NullBlock = NoNullBlock
	}
	c.HTTPAddr = "127.0.0.1:0"
	if c.Log == nil {
		c.Log = &lines{t: t}
	}
	s, err := Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

// lines are what a server logs, kept and shown with the test.
type lines struct {
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A client speaks to a server over the wire.
type client struct {
	t        *testing.T
	dealer   *wire.Dealer
	instance int
	layers   []*shm.Segment // of paged KV
	pool     []byte         // of an engine-driven client
}

func connect(t *testing.T, s *Server, instance int) *client {
	t.Helper()
	c := &client{t: t, dealer: wire.NewDealer(s.Endpoint(), s.Dialect(), patience), instance: instance}
	t.Cleanup(func() { _ = c.dealer.Close() })
	return c
}

// call makes a request that must be answered, and returns whether with a
// result.
func (c *client) call(r wire.Request, result any) bool {
	c.t.Helper()
	got, err := c.dealer.Call(c.t.Context(), r, result)
	require.NoError(c.t, err)
	return got
}

// ignored makes a request that must not be answered; the connection must be of
// use afterwards.
func (c *client) ignored(r wire.Request) {
	c.t.Helper()
	require.NoError(c.t, c.dealer.Connect(c.t.Context()))
	ctx, cancel := context.WithTimeout(c.t.Context(), silence)
	defer cancel()
	_, err := c.dealer.Call(ctx, r, wire.NewResult(r))
	requireTimeout(c.t, err)
	var ok string
	require.True(c.t, c.call(&wire.Noop{}, &ok))
	require.Equal(c.t, "OK", ok)
}

// requireTimeout checks that a call ended with the patience of its caller, which
// on a busy machine may happen while it is still being sent.
func requireTimeout(t *testing.T, err error) {
	t.Helper()
	require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
}

const model = "test-model"

func key(request string, tokens ...uint32) wire.Key {
	return wire.Key{Model: model, WorldSize: 1, Tokens: tokens, End: len(tokens) / chunk * chunk, RequestID: request, Readers: 1}
}

// prompt is n tokens that begin with first.
func prompt(first uint32, n int) wire.Tokens {
	tokens := wire.Tokens(slices.Repeat([]uint32{9906}, n))
	tokens[0] = first
	return tokens
}

// lookup returns the chunks that are found.
func (c *client) lookup(k wire.Key) int {
	c.t.Helper()
	k.Worker = wire.NoWorker
	c.call(&wire.Lookup{Key: k, TPSize: 1}, nil)
	var n int
	require.True(c.t, c.call(&wire.QueryPrefetchStatus{RequestID: k.RequestID}, &n))
	return n
}

// finds looks up until so many chunks are found, freeing what it locks.
func (c *client) finds(k wire.Key, want int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		n := c.lookup(k)
		if n > 0 {
			free := k
			free.Worker, free.Start = wire.NoWorker, 0
			c.call(&wire.FreeLookupLocks{Key: free, TPSize: 1}, nil)
		}
		return n == want
	}, patience, time.Millisecond)
}

// A spec is the shape of the layers of one group.
type spec struct {
	shape  []int
	dtype  string
	layers int
	tokens int // per block, as registered; 0: left to the server
}

// register makes a segment for each layer, filled with bytes that differ.
func (c *client) register(hint string, groups ...spec) {
	c.t.Helper()
	r := &wire.RegisterKVCache{Instance: c.instance, Model: model, WorldSize: 1, EngineType: "vllm", Hints: wire.LayoutHints{KVLayout: hint}}
	for id, g := range groups {
		described := wire.Group{ID: id, TokensPerBlock: g.tokens}
		for range g.layers {
			described.Layers = append(described.Layers, len(c.layers))
			t, segment := makeTensor(c.t, g)
			c.layers = append(c.layers, segment)
			r.Tensors = append(r.Tensors, t)
			fill(segment.Bytes(), byte(17*len(c.layers)+c.instance))
		}
		r.Groups = append(r.Groups, described)
	}
	c.call(r, nil)
}

func makeTensor(t *testing.T, g spec) (wire.Tensor, *shm.Segment) {
	t.Helper()
	stride := make([]int, len(g.shape))
	size := 1
	for axis := range slices.Backward(g.shape) {
		stride[axis] = size
		size *= g.shape[axis]
	}
	segment, err := shm.Create(size * elementBytes[g.dtype])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, segment.Close()) })
	return wire.Tensor{
		Kind: wire.CPUShared, Name: segment.Name(), Bytes: len(segment.Bytes()), DType: g.dtype,
		Shape: g.shape, Stride: stride, Device: "cpu",
	}, segment
}

func fill(b []byte, seed byte) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

// contents is a copy of all layers.
func (c *client) contents() [][]byte {
	all := make([][]byte, len(c.layers))
	for i, s := range c.layers {
		all[i] = slices.Clone(s.Bytes())
	}
	return all
}

// blank fills all layers with a pattern.
func (c *client) blank() {
	for _, s := range c.layers {
		for i := range s.Bytes() {
			s.Bytes()[i] = 0xa5
		}
	}
}

func (c *client) store(k wire.Key, blocks ...[]int) bool {
	c.t.Helper()
	var answer wire.Transfer
	require.True(c.t, c.call(&wire.Store{Key: k, Instance: c.instance, Blocks: blocks}, &answer))
	return answer.OK
}

func (c *client) retrieve(k wire.Key, blocks ...[]int) bool {
	c.t.Helper()
	var answer wire.Transfer
	require.True(c.t, c.call(&wire.Retrieve{Key: k, Instance: c.instance, Blocks: blocks}, &answer))
	return answer.OK
}

// registerEngine registers for engine-driven transfers and maps the pool.
func (c *client) registerEngine(s *Server, e wire.EngineContext) {
	c.t.Helper()
	e.Instance, e.Model, e.WorldSize = c.instance, model, max(1, e.WorldSize)
	var pool wire.Pool
	require.True(c.t, c.call(&wire.RegisterEngineDriven{Context: e}, &pool))
	segment, err := shm.Open("/"+pool.Name, pool.Size)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, segment.Close()) })
	c.pool = segment.Bytes()
}

// write stores through the pool; data is by chunk of the range.
func (c *client) write(k wire.Key, data ...[]byte) (slots int) {
	c.t.Helper()
	var p wire.PreparedStore
	require.True(c.t, c.call(&wire.PrepareStore{Key: k, Instance: c.instance}, &p))
	for i, slot := range p.Context.Slots {
		require.Len(c.t, data[p.Context.Chunks[i]], slot.Length)
		copy(c.pool[slot.Offset:slot.Offset+slot.Length], data[p.Context.Chunks[i]])
	}
	if len(p.Context.Slots) > 0 {
		var ok bool
		require.True(c.t, c.call(&wire.CommitStore{Key: k, Instance: c.instance}, &ok))
		require.True(c.t, ok)
	}
	return len(p.Context.Slots)
}

// read retrieves through the pool; nil: one of the chunks is missing.
func (c *client) read(k wire.Key) [][]byte {
	c.t.Helper()
	var p wire.PreparedRetrieve
	require.True(c.t, c.call(&wire.PrepareRetrieve{Key: k, Instance: c.instance}, &p))
	if !p.Success {
		require.Empty(c.t, p.Context.Slots)
		return nil
	}
	var data [][]byte
	for _, slot := range p.Context.Slots {
		data = append(data, slices.Clone(c.pool[slot.Offset:slot.Offset+slot.Length]))
	}
	var ok bool
	require.True(c.t, c.call(&wire.CommitRetrieve{Key: k, Instance: c.instance}, &ok))
	require.True(c.t, ok)
	return data
}

func chunkData(seed byte, bytes int) []byte {
	b := make([]byte, bytes)
	fill(b, seed)
	return b
}
