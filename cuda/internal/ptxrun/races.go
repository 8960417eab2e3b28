package ptxrun

import "fmt"

// races notes who touched each shared byte since the last barrier.
type races struct {
	epoch uint32 // counts barriers; entries of older epochs are void
	bytes []touch
}

type touch struct {
	wrote, read    uint32 // epoch of the last write and read
	writer, reader int
	readers        bool // more than one thread read in that epoch
}

func newRaces(n uint64) races { return races{epoch: 1, bytes: make([]touch, n)} }

func (r *races) barrier() { r.epoch++ }

// note records an access and reports one that races with an earlier one.
func (r *races) note(thread int, addr, n uint64, in *instruction) error {
	for i := addr; i < addr+n; i++ {
		b := &r.bytes[i]
		if b.wrote == r.epoch && b.writer != thread {
			return fmt.Errorf("%q: shared byte %d was written by thread %d since the last barrier", in.text, i, b.writer)
		}
		if in.op == opLoad {
			b.readers = b.read == r.epoch && (b.readers || b.reader != thread)
			b.read, b.reader = r.epoch, thread
			continue
		}
		if b.read == r.epoch && (b.readers || b.reader != thread) {
			return fmt.Errorf("%q: shared byte %d was read by another thread since the last barrier", in.text, i)
		}
		b.wrote, b.writer = r.epoch, thread
	}
	return nil
}
