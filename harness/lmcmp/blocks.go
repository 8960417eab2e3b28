package lmcmp

import "fmt"

// NullBlock is the id that engines keep for nothing: servers from 0.5.4 on do
// not store a chunk whose blocks are all this one, and say that they did.
const NullBlock = 0

// A Band is a run of block ids that one client hands out. The null block is in
// none.
type Band struct{ First, Count int }

// Bands splits the blocks of a shape among clients, one band each.
func (s Shape) Bands(clients int) ([]Band, error) {
	each := (s.Blocks() - 1) / clients
	if each < 1 {
		return nil, fmt.Errorf("%d blocks less the null block are not enough for %d clients", s.Blocks(), clients)
	}
	bands := make([]Band, clients)
	for i := range bands {
		bands[i] = Band{First: 1 + i*each, Count: each}
	}
	return bands, nil
}

// Take returns n ids, the ones after those that the number before took, around
// the band. They are fewer than the band's only if n is.
func (b Band) Take(number, n int) ([]int, error) {
	if n > b.Count {
		return nil, fmt.Errorf("a request needs %d blocks, there are %d for it", n, b.Count)
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = b.First + (number*n+i)%b.Count
	}
	return ids, nil
}
