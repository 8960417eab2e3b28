package kvsum

import "encoding/binary"

// Fill writes into unit what the kernel kvfill writes into unit number u:
// random-looking bytes that follow from seed and u alone.
func Fill(unit []byte, u, seed uint64) {
	w := mix64(seed + u)
	for len(unit) >= 8 {
		binary.LittleEndian.PutUint64(unit, mix64(w))
		w += phi
		unit = unit[8:]
	}
	if len(unit) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], mix64(w))
		copy(unit, last[:])
	}
}

// FilledSum is Sum(unit, sumSeed) of a unit of unitBytes bytes that
// Fill(unit, u, fillSeed) wrote, computed without the bytes. It is the expected
// value that not even corruption before the first checksum can reach.
func FilledSum(u uint64, unitBytes int, fillSeed, sumSeed uint64) uint64 {
	word, key := mix64(fillSeed+u), sumSeed+phi
	var sum uint64
	for ; unitBytes >= 8; unitBytes -= 8 {
		sum += mix64(mix64(word) ^ key)
		word += phi
		key += phi
	}
	if unitBytes > 0 {
		kept := mix64(word) & (1<<(8*unitBytes) - 1)
		sum += mix64(kept ^ key)
	}
	return sum
}
