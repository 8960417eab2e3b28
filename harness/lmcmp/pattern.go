package lmcmp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// PoisonByte is what Poison fills blocks with. A block of content that happens to
// be all this byte is as likely as a collision of hashes.
const PoisonByte = 0xa5

// A pattern is the content of one block of one plane of one layer: the outputs
// of SplitMix64 from a start of its own. Each block differs from every other,
// in any order and at any place.
type pattern uint64

const golden = 0x9e3779b97f4a7c15

// patternOf mixes the four coordinates, so that neighbours share nothing.
func patternOf(c Content, layer, plane, position int) pattern {
	return pattern(mix(c.FillSeed(layer, plane, position)))
}

// FillSeed is what the content of one block of one plane of a layer follows
// from: as a seed of the fill of package kvsum, for its unit 0, it gives the same
// bytes. Their checksum follows from it without them.
func (c Content) FillSeed(layer, plane, position int) uint64 {
	x := mix(c.Seed + golden)
	x = mix(x ^ uint64(layer)<<1 ^ uint64(plane))
	return x + uint64(position)*golden
}

// Mix spreads x over 64 bits.
func Mix(x uint64) uint64 { return mix(x + golden) }

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Block is the content of one block of one plane of a layer, of size bytes, as
// the first worker has it.
func (c Content) Block(layer, plane, position, size int) []byte {
	b := make([]byte, size)
	c.Fill(b, layer, plane, position)
	return b
}

// Fill is Block into memory that is there.
func (c Content) Fill(b []byte, layer, plane, position int) {
	patternOf(c, layer, plane, position).fill(b)
}

// Compare holds b against the content of the block that m names by layer, plane
// and position, in a run of that many positions. Where a byte differs it fills in
// the rest of m.
func (c Content) Compare(b []byte, m Mismatch, positions int) (_ Mismatch, differs bool) {
	at, want := patternOf(c, m.Layer, m.Plane, m.Position).differs(b)
	if at < 0 {
		return m, false
	}
	m.Byte, m.Want, m.Got = at, want, b[at]
	m.Looks = looks(b, c, m.Layer, m.Plane, m.Position, positions)
	return m, true
}

func (p pattern) word(i int) uint64 { return mix(uint64(p) + uint64(i)*golden) }

// fill writes the pattern to the whole of b.
func (p pattern) fill(b []byte) {
	i := 0
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, p.word(i))
		i++
	}
	for j := range b {
		b[j] = byte(p.word(i) >> (8 * j))
	}
}

// differs is the offset of the first byte of b that is not the pattern's, and
// that byte; -1 when there is none.
func (p pattern) differs(b []byte) (at int, want byte) {
	i := 0
	for ; len(b) >= 8; b = b[8:] {
		if x := binary.LittleEndian.Uint64(b) ^ p.word(i); x != 0 {
			at := bits.TrailingZeros64(x) / 8
			return 8*i + at, byte(p.word(i) >> (8 * at))
		}
		i++
	}
	for j := range b {
		if want := byte(p.word(i) >> (8 * j)); b[j] != want {
			return 8*i + j, want
		}
	}
	return -1, 0
}

// looks says what a damaged block looks like, for whoever has to find out why.
func looks(b []byte, c Content, layer, plane, position, positions int) string {
	switch {
	case uniform(b, PoisonByte):
		return "not written at all"
	case uniform(b, 0):
		return "all zero"
	}
	for other := c.First; other < c.First+positions; other++ {
		for otherPlane := range 2 {
			if at, _ := patternOf(c, layer, otherPlane, other).differs(b); at < 0 && (other != position || otherPlane != plane) {
				if otherPlane != plane {
					return "the other plane's bytes"
				}
				return "the bytes of another block of this prompt"
			}
		}
	}
	want := make([]byte, len(b))
	patternOf(c, layer, plane, position).fill(want)
	n := 0
	for i := range b {
		n += bits.OnesCount8(b[i] ^ want[i])
	}
	switch {
	case n == 1:
		return "one bit flipped"
	case n < 2*len(b): // unrelated bytes differ in half of their bits
		return "damaged in part"
	}
	return "other content: stale, or of another prompt"
}

func uniform(b []byte, value byte) bool {
	return len(b) > 0 && b[0] == value && bytes.Equal(b[1:], b[:len(b)-1])
}

// poison fills b with the byte that no content consists of.
func poison(b []byte) {
	for i := range b[:min(len(b), 64)] {
		b[i] = PoisonByte
	}
	for n := 64; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
