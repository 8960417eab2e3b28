package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Direction says which way a transfer goes.
type Direction int

const (
	HostToDevice Direction = iota
	DeviceToHost
	BothWays // at once, on two streams; needs two copy engines
)

func (d Direction) String() string { return [...]string{"h2d", "d2h", "both"}[d] }

// A Transfer is one measurement of copies between host and device.
type Transfer struct {
	Direction  Direction
	Memory     HostKind
	Bytes      int    // moved by one pass, in each direction
	BlockBytes int    // 0: one contiguous copy; else one copy a block, scattered over the device in random order
	Passes     int    // in one sample; 0: as many as take about 10 ms
	Samples    int    // 0: 3
	Gated      bool   // hold the stream until everything is enqueued, so that enqueueing is not measured
	Seed       uint64 // of the bytes, which do not compress
}

// A TransferSample is one timed run of all passes, by the device's own clock.
type TransferSample struct {
	Bytes        uint64        // moved, both directions together
	Span         time.Duration // from the first copy's start to the last one's end
	HostToDevice time.Duration // of that lane, from the common start; 0 if it was not measured
	DeviceToHost time.Duration
}

// BytesPerSecond is the bytes of both directions over the span.
func (s TransferSample) BytesPerSecond() float64 { return float64(s.Bytes) / s.Span.Seconds() }

// A TransferResult is what a Transfer gave. The bytes were compared with the seed
// after the last sample: a fast wrong copy is an error and no result.
type TransferResult struct {
	Transfer Transfer // with Passes and Samples as used
	Gated    bool     // whether the stream was held in fact
	Samples  []TransferSample
}

// Median is the median of the samples' bytes a second.
func (r TransferResult) Median() float64 {
	rates := make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		rates[i] = s.BytesPerSecond()
	}
	slices.Sort(rates)
	if n := len(rates); n%2 == 0 {
		return (rates[n/2-1] + rates[n/2]) / 2
	}
	return rates[len(rates)/2]
}

const (
	sampleTime = 10 * time.Millisecond
	maxPasses  = 10000

	// gatedCopies bounds what is enqueued behind a closed gate. The driver's queue
	// holds about a thousand entries; a call that finds it full blocks, and then
	// nobody opens the gate.
	gatedCopies = 512
)

// Measure runs a transfer. It allocates everything before, verifies everything
// after, drops a warm-up pass, and keeps the samples in their order.
//
// The host side of pinned memory lies on the NUMA node of the calling thread's
// CPU: bind the process to the GPU's node (Info.NUMANode) for the link's rate.
func (c *Context) Measure(t Transfer) (result TransferResult, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("measuring %s of %d bytes, %s memory: %w", t.Direction, t.Bytes, t.Memory, err)
		}
	}()
	if err := t.validate(); err != nil {
		return result, err
	}
	m := &measurement{transfer: t}
	defer func() { m.undo.run(&err) }()
	if err := m.setUp(c); err != nil {
		return result, err
	}
	warm, err := m.sample(c, 1, false)
	if err != nil {
		return result, fmt.Errorf("warming up: %w", err)
	}
	passes, gated := m.plan(warm.Span)
	result.Transfer, result.Gated = t, gated
	result.Transfer.Passes = passes
	if t.Samples == 0 {
		result.Transfer.Samples = 3
	}
	for i := range result.Transfer.Samples {
		s, err := m.sample(c, passes, gated)
		if err != nil {
			return result, fmt.Errorf("sample %d: %w", i, err)
		}
		result.Samples = append(result.Samples, s)
	}
	return result, m.verify(c)
}

func (t Transfer) validate() error {
	switch {
	case t.Direction < HostToDevice || t.Direction > BothWays:
		return fmt.Errorf("unknown direction %d", int(t.Direction))
	case t.Memory < Pinned || t.Memory > Registered:
		return fmt.Errorf("unknown kind of host memory %d", int(t.Memory))
	case t.Bytes < 1 || t.Passes < 0 || t.Samples < 0:
		return fmt.Errorf("bytes %d, passes %d, samples %d: must be positive", t.Bytes, t.Passes, t.Samples)
	case t.BlockBytes < 0 || t.BlockBytes > 0 && t.Bytes%t.BlockBytes != 0:
		return fmt.Errorf("blocks of %d bytes do not divide it", t.BlockBytes)
	}
	return nil
}

// copies is the number of copies in one pass of one direction.
func (t Transfer) copies() int {
	if t.BlockBytes == 0 {
		return 1
	}
	return t.Bytes / t.BlockBytes
}

// order is the physical block of each logical one on the device.
func (t Transfer) order(blocks int) []uint32 {
	order := identity(blocks)
	if t.BlockBytes > 0 {
		r := rand.New(rand.NewPCG(t.Seed, 0))
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// identity is the block list 0, 1, … n-1.
func identity(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(i)
	}
	return list
}

// plan decides the passes of a sample from the time of one, and whether they fit
// behind the gate. Copies of pageable memory block the caller, who then could not
// open it.
func (m *measurement) plan(one time.Duration) (passes int, gated bool) {
	t := m.transfer
	gated = t.Gated && m.gate != nil && t.copies()*len(m.lanes) <= gatedCopies
	if passes = t.Passes; passes == 0 {
		passes = int(min(maxPasses, max(1, sampleTime/max(one, time.Nanosecond))))
		if gated {
			passes = min(passes, gatedCopies/(t.copies()*len(m.lanes)))
		}
	}
	return passes, gated && passes*t.copies()*len(m.lanes) <= gatedCopies
}
