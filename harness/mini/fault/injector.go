package fault

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// firstTokenDelay is how long SlowFirstEmpty holds the first token back: far
// above any time to first token of a hit.
const firstTokenDelay = 300 * time.Millisecond

// loadDelay is how much longer SlowLoad makes a load: some hundred tokens of the
// small model's time.
const loadDelay = 10 * time.Millisecond

// An Injector breaks the store and the handler that it wraps, as planted. All
// methods are safe for concurrent use, also while requests run.
type Injector struct {
	model     *model.Model // knows where a token lies in a block
	blockSize int

	mu        sync.Mutex
	planted   map[Fault]bool
	dead      bool          // Die has struck
	requests  int           // completions since DropRequests was planted
	strangers int           // requests of somebody else's that ForeignTraffic has sent
	counters  counters      // what the counter faults have seen
	released  chan struct{} // closed to let stalled streams go
}

// NewInjector returns one without faults, for an engine that runs m with
// blocks of blockSize tokens.
func NewInjector(m *model.Model, blockSize int) *Injector {
	return &Injector{model: m, blockSize: blockSize, planted: map[Fault]bool{}, released: make(chan struct{})}
}

// Plant plants faults beside those that are there. It refuses those that can
// only be planted when the stack starts.
func (i *Injector) Plant(faults ...Fault) error {
	for _, f := range faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("planting: %w", err)
		}
		if f.AtStart() {
			return fmt.Errorf("planting fault %q in a running stack: it must be given when the stack starts", f)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, f := range faults {
		i.planted[f] = true
	}
	i.counters = counters{}
	i.requests = 0
	return nil
}

// Clear removes faults; without arguments, all. Stalled streams go on to their
// end, which is a cut connection, and a dead engine lives again.
func (i *Injector) Clear(faults ...Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(faults) == 0 {
		clear(i.planted)
	}
	for _, f := range faults {
		delete(i.planted, f)
	}
	i.dead = i.dead && i.planted[Die]
	if !i.planted[Stall] {
		close(i.released)
		i.released = make(chan struct{})
	}
}

// Planted lists what is planted, in the order of All and then Daser.
func (i *Injector) Planted() []Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.DeleteFunc(slices.Concat(All(), Daser()), func(f Fault) bool { return !i.planted[f] })
}

// Has says whether a fault is planted right now.
func (i *Injector) Has(f Fault) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.planted[f]
}

// strike makes the engine dead, if Die is planted.
func (i *Injector) strike() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dead = i.planted[Die]
	return i.dead
}

func (i *Injector) isDead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead
}

// drops says whether the completion that has just come is to be dropped.
func (i *Injector) drops() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.planted[DropRequests] {
		return false
	}
	i.requests++
	return i.requests%3 == 0
}

func (i *Injector) release() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.released
}
