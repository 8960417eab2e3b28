package ptxrun

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// A shape is a pool of paged KV and a launch over it.
type shape struct {
	planes, blocks int
	unit           int // bytes
	offset         int // of the pool from a multiple of 16
	gap            int // bytes between units
	slices         int // grid.z
	reverse        bool
	junk           uint64
}

// bigJunk is no address, no small count and no sum of KV.
const bigJunk = 0xBAD1BAD2BAD3BAD5

func (s shape) String() string {
	return fmt.Sprintf("%d planes, %d blocks, unit %d, offset %d, gap %d, slices %d, reverse %v",
		s.planes, s.blocks, s.unit, s.offset, s.gap, s.slices, s.reverse)
}

// Addresses as a device might give them; nothing dereferences them.
const (
	poolAddr   = 0x7f4200000000
	planesAddr = 0x7f4300000000
	idsAddr    = 0x7f4400000008
	outAddr    = 0x7f4500000010
)

// A layout is a shape with its memory.
type layout struct {
	shape
	pool   []byte
	host   kvsum.Pool // the same bytes, for the reference
	ids    []uint32
	memory Memory
	out    []byte
}

func newLayout(r *rand.Rand, s shape) *layout {
	physical, stride := s.blocks+2, s.unit+s.gap
	l := &layout{shape: s, pool: make([]byte, s.planes*physical*stride), out: make([]byte, 8*s.planes*s.blocks)}
	for i := range l.pool {
		l.pool[i] = byte(r.Uint32())
	}
	for _, b := range r.Perm(physical)[:s.blocks] {
		l.ids = append(l.ids, uint32(b))
	}
	l.host = kvsum.Pool{BlockStride: stride, UnitBytes: s.unit}
	var planes, ids []byte
	for p := range s.planes {
		l.host.Planes = append(l.host.Planes, l.pool[p*physical*stride:(p+1)*physical*stride])
		planes = binary.LittleEndian.AppendUint64(planes, uint64(poolAddr+s.offset+p*physical*stride))
	}
	for _, b := range l.ids {
		ids = binary.LittleEndian.AppendUint32(ids, b)
	}
	l.memory = Memory{{uint64(poolAddr + s.offset), l.pool}, {planesAddr, planes}, {idsAddr, ids}, {outAddr, l.out}}
	return l
}

func (l *layout) run(k *Kernel, limit uint64, params ...uint64) (uint64, error) {
	var packed []byte
	for _, p := range params {
		packed = binary.LittleEndian.AppendUint64(packed, p)
	}
	return k.Run(Launch{
		Grid:  Dim{uint32(l.blocks), uint32(l.planes), uint32(l.slices)},
		Block: Dim{256, 1, 1}, Params: packed, Memory: l.memory, Limit: limit, Reverse: l.reverse, Junk: l.junk,
	})
}

// sum runs kvsum and returns what the kernel and what the reference say.
func (l *layout) sum(k *Kernel, limit, seed uint64) (got, want []uint64, err error) {
	clear(l.out)
	vectors := l.unit / 16
	_, err = l.run(k, limit, outAddr, planesAddr, idsAddr, uint64(l.host.BlockStride), uint64(l.unit),
		uint64((vectors+l.slices-1)/l.slices), seed)
	for i := 0; i < len(l.out); i += 8 {
		got = append(got, binary.LittleEndian.Uint64(l.out[i:]))
	}
	table, wantErr := l.host.Sum(l.ids, seed)
	if wantErr != nil {
		return nil, nil, wantErr
	}
	return got, table.Sums, err
}

// fill runs kvfill and returns the pool as the kernel and as the reference
// leave it.
func (l *layout) fill(k *Kernel, limit, seed uint64) (got, want []byte, err error) {
	before := string(l.pool)
	_, err = l.run(k, limit, planesAddr, idsAddr, uint64(l.host.BlockStride), uint64(l.unit), seed)
	got = []byte(string(l.pool))
	copy(l.pool, before)
	if wantErr := l.host.Fill(l.ids, seed); wantErr != nil {
		return nil, nil, wantErr
	}
	want = []byte(string(l.pool))
	return got, want, err
}

func shipped(t testing.TB) map[string]*Kernel {
	t.Helper()
	text, err := os.ReadFile("../../kvsum.ptx")
	require.NoError(t, err)
	kernels, err := Parse(string(text))
	require.NoError(t, err)
	require.Contains(t, kernels, "kvsum")
	require.Contains(t, kernels, "kvfill")
	return kernels
}

func TestShippedKernelsAgreeWithTheReference(t *testing.T) {
	kernels := shipped(t)
	r := rand.New(rand.NewPCG(1, 2))
	check := func(s shape) {
		l, seed := newLayout(r, s), r.Uint64()
		got, want, err := l.sum(kernels["kvsum"], 0, seed)
		require.NoError(t, err, "kvsum on %v", s)
		require.Equal(t, want, got, "kvsum on %v, seed %#x", s, seed)
		filled, wantFilled, err := l.fill(kernels["kvfill"], 0, seed)
		require.NoError(t, err, "kvfill on %v", s)
		require.True(t, string(wantFilled) == string(filled), "kvfill on %v, seed %#x wrote other bytes", s, seed)
	}
	// Every path: units around the widths of a word, a vector, one round of a
	// block (4096 bytes) and of the unrolled loop (16384).
	units := []int{1, 7, 8, 9, 15, 16, 17, 31, 4095, 4096, 4097, 12288, 16384, 16400, 32775}
	random := 300
	if testing.Short() || raceEnabled {
		units, random = []int{1, 9, 16, 4097, 16384}, 20
	}
	for _, unit := range units {
		for _, offset := range []int{0, 1, 8} {
			check(shape{planes: 1, blocks: 2, unit: unit, offset: offset, gap: (16 - unit%16) % 16, slices: 1 + offset%3, junk: bigJunk})
		}
	}
	check(shape{planes: 1, blocks: 1, unit: 73728, slices: 2})
	for range random {
		check(shape{
			planes: 1 + r.IntN(3), blocks: 1 + r.IntN(3), unit: 1 + r.IntN(600),
			offset: r.IntN(32), gap: r.IntN(20), slices: 1 + r.IntN(2), reverse: r.IntN(2) == 1, junk: bigJunk * r.Uint64N(2),
		})
	}
}

// A pool may be larger than 4 GiB, so block id times stride needs 64 bits.
func TestShippedKernelsReachFarBlocks(t *testing.T) {
	const id, stride, unit = 0xFFFFFFFE, 0x12345670, 48
	unitBytes, out := make([]byte, unit), make([]byte, 8)
	far := uint64(poolAddr + id*stride)
	memory := Memory{
		{far, unitBytes},
		{outAddr, out},
		{planesAddr, binary.LittleEndian.AppendUint64(nil, poolAddr)},
		{idsAddr, binary.LittleEndian.AppendUint32(nil, id)},
	}
	run := func(kernel string, params ...uint64) {
		var packed []byte
		for _, p := range params {
			packed = binary.LittleEndian.AppendUint64(packed, p)
		}
		_, err := shipped(t)[kernel].Run(Launch{Grid: Dim{1, 1, 1}, Block: Dim{256, 1, 1}, Params: packed, Memory: memory, Junk: bigJunk})
		require.NoError(t, err)
	}
	run("kvfill", planesAddr, idsAddr, stride, unit, 7)
	want := make([]byte, unit)
	kvsum.Fill(want, 0, 7)
	require.Equal(t, want, unitBytes)
	run("kvsum", outAddr, planesAddr, idsAddr, stride, unit, unit/16, 9)
	require.Equal(t, kvsum.Sum(want, 9), binary.LittleEndian.Uint64(out))
}

func BenchmarkKvsum(b *testing.B) {
	k := shipped(b)["kvsum"]
	l := newLayout(rand.New(rand.NewPCG(1, 2)), shape{planes: 1, blocks: 1, unit: 32768, slices: 1})
	var steps uint64
	for b.Loop() {
		clear(l.out)
		n, err := l.run(k, 0, outAddr, planesAddr, idsAddr, 32768, 32768, 2048, 1)
		require.NoError(b, err)
		steps += n
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "instr/s")
}
