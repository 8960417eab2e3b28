package kvsum

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// specSum follows the specification of the package comment word by word.
func specSum(unit []byte, seed uint64) uint64 {
	var sum uint64
	for i := 0; i*8 < len(unit); i++ {
		var word uint64
		for k := 0; k < 8 && i*8+k < len(unit); k++ {
			word |= uint64(unit[i*8+k]) << (8 * k)
		}
		x := word ^ (seed + uint64(i+1)*phi)
		x ^= x >> 30
		x *= 0xBF58476D1CE4E5B9
		x ^= x >> 27
		x *= 0x94D049BB133111EB
		x ^= x >> 31
		sum += x
	}
	return sum
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// The values come from another implementation of the specification, in Python
// with its unbounded integers.
func TestSumVectors(t *testing.T) {
	hundred := make([]byte, 100)
	for i := range hundred {
		hundred[i] = byte(i)
	}
	ones := make([]byte, 4096) // fp16 1.0
	for i := 1; i < len(ones); i += 2 {
		ones[i] = 0x3c
	}
	for _, v := range []struct {
		name string
		unit []byte
		seed uint64
		want uint64
	}{
		{"nothing", nil, 1, 0},
		// The first output of SplitMix64 seeded with 0.
		{"one zero byte", []byte{0}, 0, 0xe220a8397b1dcdaf},
		{"three bytes", []byte("abc"), 1, 0xbfb75687e601c75a},
		{"one word", []byte("abcdefgh"), 1, 0xf319d21866424748},
		{"one word and a byte", []byte("abcdefghi"), 1<<64 - 1, 0xb3221786a1538afa},
		{"hundred bytes", hundred, 0x1234567890abcdef, 0xf66b32f1f7fa6819},
		{"4 KiB of fp16 ones", ones, 7, 0xf08f2da2d0d71415},
	} {
		t.Run(v.name, func(t *testing.T) {
			require.Equal(t, v.want, Sum(v.unit, v.seed), "Sum(%d bytes, %#x)", len(v.unit), v.seed)
		})
	}
}

func TestSumFollowsSpecification(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	backing := randomBytes(r, 1<<16)
	for n := range 3000 {
		size, at, seed := r.IntN(300), r.IntN(17), r.Uint64()
		if n%10 == 0 {
			size = r.IntN(1 << 14)
		}
		unit := backing[at : at+size]
		require.Equal(t, specSum(unit, seed), Sum(unit, seed), "Sum(%d bytes at offset %d, %#x)", size, at, seed)
	}
}

// stride thins out what the race detector, which has nothing to find here, would
// make slow.
var stride = map[bool]int{false: 1, true: 29}[raceEnabled]

func TestEverySingleBitFlipShows(t *testing.T) {
	unit := randomBytes(rand.New(rand.NewPCG(3, 4)), 4096+5)
	clean := Sum(unit, 42)
	missed := 0
	for bit := 0; bit < len(unit)*8; bit += stride {
		unit[bit/8] ^= 1 << (bit % 8)
		if Sum(unit, 42) == clean {
			missed++
		}
		unit[bit/8] ^= 1 << (bit % 8)
	}
	require.Zero(t, missed, "bit flips that left the sum as it was, of %d", len(unit)*8)
}

func TestEveryTruncationShows(t *testing.T) {
	unit := randomBytes(rand.New(rand.NewPCG(5, 6)), 4096+5)
	for i := range unit {
		unit[i] |= 1 // a zero tail within the last word is invisible by definition
	}
	clean, zeroed := Sum(unit, 42), make([]byte, len(unit))
	for n := 0; n < len(unit); n += stride {
		require.NotEqual(t, clean, Sum(unit[:n], 42), "sum of the first %d bytes", n)
		copy(zeroed, unit[:n])
		require.NotEqual(t, clean, Sum(zeroed, 42), "sum with zeroes after %d bytes", n)
	}
	require.NotZero(t, Sum(make([]byte, 4096), 42), "sum of a zero block")
}

// KV is low in entropy: few exponents, signs that flip together. These words
// are all drawn from 16 fp16 values.
func TestOrderAndSignsShowInLowEntropyData(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	unit := make([]byte, 2048)
	for i := 0; i < len(unit); i += 2 {
		binary.LittleEndian.PutUint16(unit[i:], 0x3c00|uint16(r.IntN(16))<<6)
	}
	clean, words := Sum(unit, 9), len(unit)/8
	word := func(i int) []byte { return unit[8*i : 8*i+8] }
	swap := func(a, b []byte) {
		for i := range a {
			a[i], b[i] = b[i], a[i]
		}
	}
	negate := func(i int) {
		for k := 1; k < 8; k += 2 {
			word(i)[k] ^= 0x80
		}
	}
	for i := 0; i < words; i += stride {
		for j := range i {
			if string(word(i)) != string(word(j)) {
				swap(word(i), word(j))
				require.NotEqual(t, clean, Sum(unit, 9), "words %d and %d swapped", i, j)
				swap(word(i), word(j))
			}
			negate(i)
			negate(j)
			require.NotEqual(t, clean, Sum(unit, 9), "all signs of words %d and %d flipped", i, j)
			negate(i)
			negate(j)
		}
	}
	require.Equal(t, clean, Sum(unit, 9), "the unit is restored")
}

func TestSumDependsOnSeed(t *testing.T) {
	unit := make([]byte, 64)
	seen := map[uint64]bool{}
	for seed := range uint64(1000) {
		seen[Sum(unit, seed)] = true
	}
	require.Len(t, seen, 1000)
}

func TestFold(t *testing.T) {
	require.Equal(t, uint64(0x8aa449ce2d0ca1d3), Fold(nil, 64))
	require.Equal(t, uint64(0xed20c9f8a969b0ba), Fold([]uint64{1, 2, 3}, 64))
	require.Equal(t, uint64(0xc20654093df42ff0), Fold([]uint64{3, 2, 1}, 64))

	r := rand.New(rand.NewPCG(9, 10))
	units := make([]uint64, 64)
	for i := range units {
		units[i] = r.Uint64()
	}
	whole := Fold(units, 4096)
	for i := range units {
		for j := range i {
			units[i], units[j] = units[j], units[i]
			require.NotEqual(t, whole, Fold(units, 4096), "units %d and %d swapped", i, j)
			units[i], units[j] = units[j], units[i]
		}
	}
	require.NotEqual(t, whole, Fold(units[:63], 4096), "one unit less")
	require.NotEqual(t, whole, Fold(append(units, 0), 4096), "a zero unit more")
	require.NotEqual(t, whole, Fold(units, 4097), "other unit size")
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("abcdefghi"), uint64(1))
	f.Fuzz(func(t *testing.T, unit []byte, seed uint64) {
		require.Equal(t, specSum(unit, seed), Sum(unit, seed))
	})
}
