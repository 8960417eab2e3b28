package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForVersion(t *testing.T) {
	for _, c := range []struct {
		version, want string
		newer         bool
		err           string
	}{
		{"0.5.6-g3e11e108", "0.5.6", false, ""},
		{"0.5.5", "0.5.5", false, ""},
		{"v0.4.7", "0.4.7", false, ""},
		{"0.5.5rc2", "0.5.5", false, ""},
		{"0.5.7", "0.5.7", true, ""},
		{"1.0.0-g1", "1.0.0", true, ""},
		{"0.4.6", "", false, "is not known"},
		{"0.3.15", "", false, "known are 0.4.7, 0.5.0,"},
		{"unknown", "", false, "want three numbers"},
		{"", "", false, "want three numbers"},
	} {
		d, err := ForVersion(c.version)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "ForVersion(%q)", c.version)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, d.Version)
		require.Equal(t, c.newer, d.Newer)
	}
}

// The numbers of a wrong release mean other operations, some of which empty the
// cache: this is why a server's release must be known.
func TestNumbersCollideBetweenReleases(t *testing.T) {
	a, err := ForVersion("0.4.7")
	require.NoError(t, err)
	b, err := ForVersion("0.5.2")
	require.NoError(t, err)
	frames, err := a.EncodeRequest(0, &GetChunkSize{})
	require.NoError(t, err)
	got, err := b.DecodeRequest(frames)
	require.NoError(t, err)
	require.Equal(t, OpClear, got.Request.Op())
}

// A server that is newer than what is known is asked by name, since names do
// not move.
func TestNewerServerIsAskedByName(t *testing.T) {
	d, err := ForVersion("0.9.0")
	require.NoError(t, err)
	frames, err := d.EncodeRequest(3, &GetChunkSize{})
	require.NoError(t, err)
	require.Equal(t, [][]byte{{3}, encoded(t, "get_chunk_size")}, frames)
}

func TestGoldenFrames(t *testing.T) {
	c, err := ForVersion("0.5.5")
	require.NoError(t, err)
	a, err := ForVersion("0.4.7")
	require.NoError(t, err)
	for _, g := range []struct {
		dialect *Dialect
		uid     uint64
		request Request
		want    [][]byte
	}{
		{a, 0, &GetChunkSize{}, [][]byte{{0}, {0x11}}},
		{c, 0, &GetChunkSize{}, [][]byte{{0}, {0x15}}},
		{c, 0x78, &Noop{}, [][]byte{{0x78}, {0x18}}},
		{c, 300, &Ping{}, [][]byte{{0xcd, 1, 44}, {22}, {0xc0}}},
		{c, 1, &Clear{Force: true}, [][]byte{{1}, {20}}},
		{Newest(), 1, &Clear{}, [][]byte{{1}, {20}, {0xc2}}},
	} {
		frames, err := g.dialect.EncodeRequest(g.uid, g.request)
		require.NoError(t, err)
		require.Equal(t, g.want, frames)
	}
	_, err = a.EncodeRequest(0, &WaitPrefetchStatus{})
	require.ErrorContains(t, err, "LMCache 0.4.7 has no operation wait_prefetch_status")
}

// What the server would drop without a word is refused before it is sent.
func TestKeyCheck(t *testing.T) {
	good := Key{Model: "m", WorldSize: 1, Tokens: make(Tokens, 10), Start: 4, End: 8, RequestID: "r", Readers: 1}
	require.NoError(t, good.Check(4))
	for _, c := range []struct {
		name string
		edit func(*Key)
		want string
	}{
		{"no request id", func(k *Key) { k.RequestID = "" }, "request id"},
		{"model with @", func(k *Key) { k.Model = "a@b" }, "model name"},
		{"salt with @", func(k *Key) { k.Salt = "a@b" }, "cache salt"},
		{"long salt", func(k *Key) { k.Salt = string(make([]byte, 129)) }, "cache salt"},
		{"no readers", func(k *Key) { k.Readers = 0 }, "readers"},
		{"worker out of the world", func(k *Key) { k.Worker = 1 }, "worker 1"},
		{"past the prompt", func(k *Key) { k.End = 12 }, "prompt of 10"},
		{"backwards", func(k *Key) { k.Start = 12 }, "prompt of 10"},
		{"not a chunk", func(k *Key) { k.End = 6 }, "multiple"},
		{"begins in a chunk", func(k *Key) { k.Start = 2 }, "multiple"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := good
			c.edit(&k)
			require.ErrorContains(t, k.Check(4), c.want)
		})
	}
}

// Descriptors survive both bodies, whatever their numbers need of width.
func TestTensorBodies(t *testing.T) {
	for _, tensor := range []Tensor{
		{Kind: CPUShared, Name: "/a", Bytes: 1 << 40, DType: "bfloat16", Shape: []int{2, 3}, Stride: []int{3, 1}, Device: "cpu"},
		{Kind: CPUShared, Name: "/b", Bytes: 70_000, DType: "uint8", Shape: []int{1, 2, 3}, Stride: []int{1 << 33, 300, 1}, Device: "cpu"},
		{Kind: CPUShared, Name: "/c", Bytes: 1 << 31, DType: "float32", Shape: []int{9}, Stride: []int{1}, Start: 4, Device: "cpu"},
	} {
		for _, pickled := range []bool{false, true} {
			var got Tensor
			document := encoded(t, tensorField{&tensor, pickled})
			require.NoError(t, Decode(document, tensorField{&got, pickled}))
			require.Equal(t, tensor, got, "pickled: %v", pickled)
			require.Error(t, Decode(document, tensorField{&got, !pickled}), "the other body")
		}
	}
	raw := Tensor{
		Kind: CUDARaw, Handle: make([]byte, IPCHandleSize), Offset: 512, Bytes: 64, DType: "float16",
		Shape: []int{32}, Stride: []int{1}, Device: "GPU-1",
	}
	var got Tensor
	require.NoError(t, Decode(encoded(t, tensorField{&raw, false}), tensorField{&got, false}))
	require.Equal(t, raw, got)
	_, err := Encode(tensorField{&raw, true})
	require.ErrorContains(t, err, "before 0.5.6")
}
