// Package kvsum defines the checksum that says whether KV bytes are the bytes
// that were stored, and computes it on the CPU. Package cuda computes the same
// value on the device; this package has no dependencies, so that programs that
// must stay static (the miniature stack) can use it as well.
//
//	want := kvsum.Pool{Planes: sent, BlockStride: 4096, UnitBytes: 4096}
//	got := kvsum.Pool{Planes: retrieved, BlockStride: 4096, UnitBytes: 4096}
//	before, err := want.Sum([]uint32{7, 0, 3}, seed)
//	after, err := got.Sum([]uint32{1, 2, 9}, seed) // other physical blocks, same content
//	for _, unit := range before.Diff(after) { ... } // names layer, plane and block
//
// # Specification
//
// A unit is one contiguous run of bytes: one physical block of one plane (K, V
// or the fused latent) of one layer. Bytes are raw, so any dtype will do and a
// NaN is as good as any other value. All arithmetic is modulo 2^64.
//
//	phi       = 0x9E3779B97F4A7C15
//	mix64(x)  : x ^= x>>30; x *= 0xBF58476D1CE4E5B9
//	            x ^= x>>27; x *= 0x94D049BB133111EB
//	            x ^= x>>31
//	word[i]   = the i-th little-endian 8-byte word of the unit, the last one
//	            padded with zero bytes
//	Sum(unit) = sum over i of mix64(word[i] xor (seed + (i+1)*phi))
//	Fold(u)   : h = mix64(n*phi xor unitBytes) for n units; then for each unit
//	            in order h = mix64(rotl(h, 29)*5 + u)
//	Fill      : word[i] of unit u = mix64(mix64(seed+u) + i*phi)
//
// The index i is the position within the unit and u the logical number of the
// unit (plane*blocks + position in the block list), never a physical block id:
// data stored from one set of blocks and retrieved into another must agree.
// The sum commutes, so any split over threads and thread blocks gives the bits
// of the sequential loop; the position is in the key of each term instead.
//
// # What it detects
//
//   - Any change confined to one aligned 8-byte word, so every single-bit flip
//     and up to four fp16 values: always. mix64 is a bijection, exactly one term
//     changes.
//   - Changes in several words, swapped words, tokens or tensor rows, shifts:
//     missed with probability 2^-64 (mix64 taken as a random function; no
//     structure was found over low-entropy fp16-like words).
//   - Swapped, duplicated or misplaced blocks, wrong layer or plane: units are
//     compared by position, so always, up to equal contents or 2^-64.
//   - Truncated, stale or zeroed blocks: as changes, if the destination held
//     something else before; a zero block has a non-trivial sum.
//   - Length: the sum of a unit does not contain it (trailing zero bytes within
//     the last word are invisible); Fold does.
//   - Faults before the first checksum: only when the data came from Fill, whose
//     sum FilledSum derives from the seed alone.
//   - Deliberate forgery: no. Additive 64-bit hashes fall to generalised-birthday
//     search. Use SHA-256 for artifacts.
//
// For 65,536 units in a million passes that are all corrupt, the chance of a
// single miss is 65536 * 10^6 / 2^64, about 4e-9. A second seed squares it. Draw
// the seed at random per run and print it.
//
// # Why this one
//
// The finalizer is that of SplitMix64 ("Mix13" constants). Its shifts keep clear
// of the 16- and 32-bit lanes of KV data: with an x ^= x>>32 mixer, flipping the
// sign of every fp16 lane cancels in the low word before the first multiply.
// Plain sums and XOR do not see order; a multilinear sum modulo 2^64 misses
// pairs of bit-63 flips; CRCs need carry-less multiplies that PTX lacks; XXH3
// and MD5 are serial, which a device cannot afford.
package kvsum
