package kvsum

import (
	"encoding/binary"
	"math/bits"
)

const phi uint64 = 0x9E3779B97F4A7C15

// mix64 is the finalizer of SplitMix64, a bijection.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Sum is the checksum of one unit, bit for bit what the kernel kvsum computes.
// The sum of no bytes is 0.
//
// One accumulator and one running key are enough: the terms do not depend on
// each other, so the processor overlaps them, and more live values than this
// make the compiler spill inside the loop.
func Sum(unit []byte, seed uint64) uint64 {
	key := seed + phi
	var sum uint64
	for len(unit) >= 32 {
		q := unit[:32:32]
		sum += mix64(binary.LittleEndian.Uint64(q) ^ key)
		key += phi
		sum += mix64(binary.LittleEndian.Uint64(q[8:]) ^ key)
		key += phi
		sum += mix64(binary.LittleEndian.Uint64(q[16:]) ^ key)
		key += phi
		sum += mix64(binary.LittleEndian.Uint64(q[24:]) ^ key)
		key += phi
		unit = unit[32:]
	}
	for len(unit) >= 8 {
		sum += mix64(binary.LittleEndian.Uint64(unit) ^ key)
		key += phi
		unit = unit[8:]
	}
	if len(unit) > 0 {
		var last [8]byte
		copy(last[:], unit)
		sum += mix64(binary.LittleEndian.Uint64(last[:]) ^ key)
	}
	return sum
}

// Fold combines the sums of units, in order, into one value that also depends on
// their number and on unitBytes, the size of each. Unit sums become those of a
// chunk, of a layer and of a request this way.
func Fold(units []uint64, unitBytes int) uint64 {
	f := newFolder(len(units), unitBytes)
	for _, u := range units {
		f.add(u)
	}
	return f.h
}

type folder struct{ h uint64 }

func newFolder(n, unitBytes int) *folder {
	return &folder{h: mix64(uint64(n)*phi ^ uint64(unitBytes))}
}

func (f *folder) add(u uint64) {
	f.h = mix64(bits.RotateLeft64(f.h, 29)*5 + u)
}
