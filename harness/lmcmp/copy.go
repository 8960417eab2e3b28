package lmcmp

import (
	"runtime"
	"sync"
)

// A span is a run of bytes to copy.
type span struct{ to, from []byte }

const (
	// parallelFrom is the size from which a copy is worth more than one core.
	parallelFrom = 1 << 20
	// maxCopiers bounds the cores: memory is full before they are.
	maxCopiers = 4
)

// copiers is how many cores copy.
func copiers() int { return min(runtime.GOMAXPROCS(0), maxCopiers) }

// copySpans copies all of them, on several cores where there is enough. One
// core of a server moves about 10 GB/s in pieces of up to 512 KiB, which is
// what a chunk's layers are; two reach twice that.
func copySpans(spans []span) int {
	total := 0
	for _, s := range spans {
		total += len(s.to)
	}
	copiers := min(copiers(), len(spans))
	if total < parallelFrom || copiers < 2 {
		for _, s := range spans {
			copy(s.to, s.from)
		}
		return total
	}
	var work sync.WaitGroup
	for i := range copiers {
		part := spans[i*len(spans)/copiers : (i+1)*len(spans)/copiers]
		run := func() {
			for _, s := range part {
				copy(s.to, s.from)
			}
		}
		if i == copiers-1 { // the caller is one of them
			run()
			break
		}
		work.Go(run)
	}
	work.Wait()
	return total
}

// spans pairs the bytes of a chunk in a slot of the server's pool, which lie as
// [plane][layer][token][element], with those of its blocks. Blocks that follow
// each other are one span.
func (m *HostMemory) spans(slot []byte, blocks []int, toSlot bool) []span {
	var spans []span
	for plane := range m.layers[0].Planes {
		for _, l := range m.layers {
			n := l.BlockBytes()
			for i := 0; i < len(blocks); {
				run := 1
				for i+run < len(blocks) && blocks[i+run] == blocks[i]+run {
					run++
				}
				at := (plane*l.Blocks + blocks[i]) * n
				s := span{to: slot[:run*n], from: l.bytes[at : at+run*n]}
				if !toSlot {
					s.to, s.from = s.from, s.to
				}
				spans = append(spans, s)
				slot = slot[run*n:]
				i += run
			}
		}
	}
	return spans
}

// chunkBytes is the size of a chunk of that many blocks.
func (m *HostMemory) chunkBytes(blocks int) int {
	total := 0
	for _, l := range m.layers {
		total += l.Planes * blocks * l.BlockBytes()
	}
	return total
}
