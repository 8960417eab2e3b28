package ptxrun

import "fmt"

// A Dim is the shape of a grid or of a thread block.
type Dim struct{ X, Y, Z uint32 }

func (d Dim) count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// A Region is one allocation that global addresses may lie in.
type Region struct {
	Addr  uint64
	Bytes []byte
}

// Memory is what a kernel may touch. Regions do not overlap.
type Memory []Region

// A Launch is everything about one execution of a kernel.
type Launch struct {
	Grid, Block Dim
	Params      []byte // the packed block, as the driver passes it
	Memory      Memory
	Limit       uint64 // instructions that may be executed; 0 is no limit
	Reverse     bool   // run the threads of a block from the last to the first
	Junk        uint64 // what uninitialised registers hold
}

// A cta is one thread block (cooperative thread array) while it runs.
type cta struct {
	kernel *Kernel
	launch *Launch
	*scratch
	lastHit int // region of the last access, most likely that of the next
	steps   uint64
}

// A thread is one thread of the block.
type thread struct {
	number    int
	registers []uint64
	pc        int
	done      bool
}

// A scratch is the memory of one launch. A kernel keeps it for the next: clearing
// megabytes of fresh memory would cost more than a small launch.
type scratch struct {
	file, junk []uint64 // registers of all threads, and what they start as
	threads    []thread
	shared     []byte
	races      races
}

func (k *Kernel) takeScratch(threads int, junk uint64) *scratch {
	s, ok := k.spare.Get().(*scratch)
	if !ok || len(s.threads) != threads || len(s.junk) > 0 && s.junk[0] != junk {
		n := threads * k.registers
		s = &scratch{
			file: make([]uint64, n), junk: make([]uint64, n), threads: make([]thread, threads),
			shared: make([]byte, k.sharedSize), races: newRaces(k.sharedSize),
		}
		for i := range s.junk {
			s.junk[i] = junk
		}
	}
	return s
}

// junkByte is what shared memory holds at the start.
const junkByte = 0xDB

// Run executes the kernel and returns how many instructions it took.
func (k *Kernel) Run(l Launch) (steps uint64, err error) {
	n := l.Block.count()
	switch {
	case n == 0 || l.Grid.count() == 0:
		return 0, fmt.Errorf("launching %s: empty grid %v or block %v", k.Name, l.Grid, l.Block)
	case k.MaxThreads != 0 && n > uint64(k.MaxThreads):
		return 0, fmt.Errorf("launching %s: block %v is over .maxntid %d", k.Name, l.Block, k.MaxThreads)
	case uint64(len(l.Params)) != k.paramSize:
		return 0, fmt.Errorf("launching %s: %d bytes of parameters, want %d", k.Name, len(l.Params), k.paramSize)
	}
	c := &cta{kernel: k, launch: &l, scratch: k.takeScratch(int(n), l.Junk)}
	defer k.spare.Put(c.scratch)
	for z := range l.Grid.Z {
		for y := range l.Grid.Y {
			for x := range l.Grid.X {
				id := Dim{x, y, z}
				c.reset(id)
				if err := c.run(); err != nil {
					return c.steps, fmt.Errorf("running %s, block %v of the grid: %w", k.Name, id, err)
				}
			}
		}
	}
	return c.steps, nil
}

// reset makes the threads ready for one block of the grid.
func (c *cta) reset(id Dim) {
	copy(c.file, c.junk)
	for i := range c.shared {
		c.shared[i] = junkByte
	}
	c.races.barrier()
	n := c.kernel.registers
	for i := range c.threads {
		c.threads[i] = thread{number: i, registers: c.file[i*n : (i+1)*n]}
		c.threads[i].setSpecials(id, c.launch)
	}
}

// setSpecials fills the slots named by the variable specials.
func (t *thread) setSpecials(id Dim, l *Launch) {
	n, b := uint32(t.number), l.Block
	for slot, v := range [...]uint32{
		n % b.X, n / b.X % b.Y, n / b.X / b.Y, b.X, b.Y, b.Z,
		id.X, id.Y, id.Z, l.Grid.X, l.Grid.Y, l.Grid.Z,
	} {
		t.registers[slot] = uint64(v)
	}
}

// run takes all threads from barrier to barrier until they have returned.
func (c *cta) run() error {
	threads := c.threads
	for alive := len(threads); alive > 0; {
		waiting := 0
		for i := range threads {
			t := &threads[i]
			if c.launch.Reverse {
				t = &threads[len(threads)-1-i]
			}
			if t.done {
				continue
			}
			if err := c.step(t); err != nil {
				return fmt.Errorf("thread %d: %w", t.number, err)
			}
			if t.done {
				alive--
			} else {
				waiting++
			}
		}
		if waiting != 0 && waiting != len(threads) {
			return fmt.Errorf("barrier reached by %d of %d threads", waiting, len(threads))
		}
		c.races.barrier()
	}
	return nil
}

// find is the n bytes at a global address, or nil if no region has them all.
func (c *cta) find(addr, n uint64) []byte {
	m := c.launch.Memory
	for i := range m {
		at := c.lastHit + i
		if at >= len(m) {
			at -= len(m)
		}
		r := &m[at]
		size := uint64(len(r.Bytes))
		if off := addr - r.Addr; addr >= r.Addr && n <= size && off <= size-n {
			c.lastHit = at
			return r.Bytes[off : off+n]
		}
	}
	return nil
}
