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
	kernel  *Kernel
	launch  *Launch
	shared  []byte
	races   races
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
	c := &cta{kernel: k, launch: &l, shared: make([]byte, k.sharedSize), races: newRaces(k.sharedSize)}
	file := make([]uint64, int(n)*k.registers)
	junk := make([]uint64, len(file))
	for i := range junk {
		junk[i] = l.Junk
	}
	threads := make([]thread, n)
	for z := range l.Grid.Z {
		for y := range l.Grid.Y {
			for x := range l.Grid.X {
				copy(file, junk)
				for i := range c.shared {
					c.shared[i] = junkByte
				}
				c.races.reset()
				id := Dim{x, y, z}
				for i := range threads {
					threads[i] = thread{number: i, registers: file[i*k.registers : (i+1)*k.registers]}
					threads[i].setSpecials(id, &l)
				}
				if err := c.run(threads); err != nil {
					return c.steps, fmt.Errorf("running %s, block %v of the grid: %w", k.Name, id, err)
				}
			}
		}
	}
	return c.steps, nil
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
func (c *cta) run(threads []thread) error {
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
