package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// A shape is paged KV and what is asked of it.
type shape struct {
	planes, physical int
	blocks           int // asked for
	unit, gap        int // bytes
	offset           int // of the first plane in its allocation
}

func (s shape) String() string {
	return fmt.Sprintf("%d planes, %d of %d blocks, units of %d bytes and gaps of %d, offset %d",
		s.planes, s.blocks, s.physical, s.unit, s.gap, s.offset)
}

func (s shape) stride() int { return s.unit + s.gap }
func (s shape) size() int   { return s.offset + s.planes*s.physical*s.stride() }

// randomShape is small, since an executor of PTX runs it, and crosses all the
// borders of the kernel: words, vectors, alignments.
func randomShape(r *rand.Rand) shape {
	s := shape{planes: 1 + r.IntN(2), physical: 1 + r.IntN(4), unit: 1 + r.IntN(300), gap: r.IntN(20), offset: r.IntN(33)}
	if r.IntN(4) == 0 { // as real ones: whole vectors
		s.unit, s.gap, s.offset = 16*(1+r.IntN(40)), 16*r.IntN(3), 16*r.IntN(3)
	}
	s.blocks = 1 + r.IntN(s.physical)
	return s
}

// A scene is a shape laid out in device memory and mirrored on the host.
type scene struct {
	shape
	base   Ptr
	memory []byte // the mirror
	pool   Pool
	host   kvsum.Pool // over the mirror
	blocks []uint32
}

func newScene(c *Context, r *rand.Rand, s shape) (*scene, error) {
	base, err := c.Alloc(uint64(s.size()))
	if err != nil {
		return nil, err
	}
	n := &scene{shape: s, base: base, memory: make([]byte, s.size())}
	kvsum.Fill(n.memory, r.Uint64(), 0)
	n.pool = Pool{Blocks: s.physical, BlockStride: uint64(s.stride()), UnitBytes: uint64(s.unit)}
	n.host = kvsum.Pool{BlockStride: s.stride(), UnitBytes: s.unit}
	for p := range s.planes {
		at := s.offset + p*s.physical*s.stride()
		n.pool.Planes = append(n.pool.Planes, base+Ptr(at))
		n.host.Planes = append(n.host.Planes, n.memory[at:at+s.physical*s.stride()])
	}
	for _, b := range r.Perm(s.physical)[:s.blocks] {
		n.blocks = append(n.blocks, uint32(b))
	}
	if err := c.Write(base, n.memory); err != nil {
		return nil, errors.Join(err, c.Free(base))
	}
	return n, nil
}

// agree compares kernels and reference over one shape: the sums of random bytes,
// the fill, and that the fill wrote nothing outside its blocks.
func agree(c *Context, r *rand.Rand, s shape) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%v: %w", s, err)
		}
	}()
	n, err := newScene(c, r, s)
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return c.Free(n.base) })
	g, err := c.NewDigester(n.pool, s.blocks)
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return g.Close(c) })
	seed, fillSeed := r.Uint64(), r.Uint64()
	want, wantErr := n.host.Sum(n.blocks, seed)
	sums, err := g.Sum(c, n.blocks, seed)
	if err = errors.Join(err, wantErr); err != nil {
		return err
	}
	if diff := want.Diff(sums); len(diff) > 0 {
		return fmt.Errorf("seed %#x: the sums of %v differ", seed, diff)
	}
	if err := g.Fill(c, n.blocks, fillSeed); err != nil {
		return err
	}
	got := make([]byte, len(n.memory))
	if err := errors.Join(c.Read(got, n.base), n.host.Fill(n.blocks, fillSeed)); err != nil {
		return err
	}
	if string(got) != string(n.memory) {
		return errors.New("the fill differs from the reference, or reaches outside its blocks")
	}
	return nil
}

// borderShapes reach every path of the kernels.
var borderShapes = []shape{
	{planes: 2, physical: 3, blocks: 2, unit: 16384},              // several rounds of the unrolled loop
	{planes: 1, physical: 2, blocks: 1, unit: 73728},              // two slices
	{planes: 1, physical: 2, blocks: 1, unit: 65536 + 24, gap: 8}, // two slices and a tail
	{planes: 4, physical: 5, blocks: 3, unit: 4100, offset: 1},    // nothing is aligned
	{planes: 70, physical: 2, blocks: 2, unit: 64},                // many planes
	{planes: 1, physical: 200, blocks: 180, unit: 32},             // many blocks
}

// checkAgreement runs the border shapes and some random ones.
func checkAgreement(t *testing.T, v *Device, random int) {
	do(t, v, func(c *Context) error {
		r := rand.New(rand.NewPCG(1, 2))
		for _, s := range borderShapes {
			if err := agree(c, r, s); err != nil {
				return err
			}
		}
		for range random {
			if err := agree(c, r, randomShape(r)); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestKernelsAgreeWithTheReference(t *testing.T) {
	_, v := openStandIn(t)
	if testing.Short() || raceEnabled {
		checkAgreement(t, v, 50)
		return
	}
	checkAgreement(t, v, 2000)
}

// located checks that damage on the device shows in the right units and only
// there.
func located(c *Context, r *rand.Rand, s shape, flips int) (err error) {
	n, err := newScene(c, r, s)
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return c.Free(n.base) })
	g, err := c.NewDigester(n.pool, s.blocks)
	if err != nil {
		return err
	}
	defer leave(&err, func() error { return g.Close(c) })
	const seed = 42
	before, err := g.Sum(c, n.blocks, seed)
	if err != nil {
		return err
	}
	expect := func(what string, blocks []uint32, want ...kvsum.Unit) error {
		after, err := g.Sum(c, blocks, seed)
		if diff := before.Diff(after); err == nil && fmt.Sprint(diff) != fmt.Sprint(want) {
			err = fmt.Errorf("differs at %v, want %v", diff, want)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	unitAt := func(u kvsum.Unit) int {
		return s.offset + u.Plane*s.physical*s.stride() + int(n.blocks[u.Block])*s.stride()
	}
	patch := func(at int, b ...byte) error { return c.Write(n.base+Ptr(at), b) }

	for range flips {
		u := kvsum.Unit{Plane: r.IntN(s.planes), Block: r.IntN(s.blocks)}
		at := unitAt(u) + r.IntN(s.unit)
		err := errors.Join(patch(at, n.memory[at]^1<<r.IntN(8)),
			expect(fmt.Sprintf("bit flipped at byte %d", at), n.blocks, u), patch(at, n.memory[at]))
		if err != nil {
			return err
		}
	}
	var all []kvsum.Unit
	for p := range s.planes {
		for b := range s.blocks {
			if b < 2 {
				all = append(all, kvsum.Unit{Plane: p, Block: b})
			}
		}
	}
	swapped := append([]uint32{n.blocks[1], n.blocks[0]}, n.blocks[2:]...)
	last := kvsum.Unit{Plane: s.planes - 1, Block: s.blocks - 1}
	at := unitAt(last)
	words := append(append([]byte(nil), n.memory[at+8:at+16]...), n.memory[at:at+8]...)
	return errors.Join(
		expect("two blocks swapped", swapped, all...),
		patch(at, words...), expect("two words swapped", n.blocks, last), patch(at, n.memory[at:at+16]...),
		// A copy that stopped early leaves the poison of before.
		patch(at+s.unit-5, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE), expect("truncated by five bytes", n.blocks, last),
		patch(at, make([]byte, s.unit)...), expect("zeroed", n.blocks, last),
		patch(at, n.memory[unitAt(kvsum.Unit{}):][:s.unit]...), expect("another block's content", n.blocks, last),
		patch(at, n.memory[at:at+s.unit]...), expect("restored", n.blocks),
	)
}

func TestDamageIsLocated(t *testing.T) {
	_, v := openStandIn(t)
	flips := 100
	if testing.Short() || raceEnabled {
		flips = 5
	}
	do(t, v, func(c *Context) error {
		r := rand.New(rand.NewPCG(3, 4))
		return errors.Join(
			located(c, r, shape{planes: 4, physical: 6, blocks: 3, unit: 1024}, flips),
			located(c, r, shape{planes: 2, physical: 4, blocks: 4, unit: 203, gap: 5, offset: 3}, flips),
		)
	})
}
