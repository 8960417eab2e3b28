package cuda

import (
	"fmt"
	"time"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// A measurement is the memory, streams and events of one Transfer.
type measurement struct {
	transfer Transfer
	lanes    []*lane
	start    Event
	gate     *gate // nil where the stream cannot be held
	undo     cleanup
}

// A lane is one direction.
type lane struct {
	toDevice bool
	seed     uint64
	host     *HostMemory
	device   Ptr
	order    []uint32 // physical block on the device of each block on the host
	block    int      // bytes
	digester *Digester
	stream   Stream
	stop     Event
}

// What a destination holds before the first copy.
const poison = 0xEE

// verifySeed keys the sums that compare source and destination.
const verifySeed = 0x6B7670726F6F66

func (m *measurement) setUp(c *Context) error {
	t := m.transfer
	var err error
	if m.start, err = c.NewEvent(); err != nil {
		return err
	}
	m.undo.add(func() error { return c.DestroyEvent(m.start) })
	if t.Direction != DeviceToHost {
		m.lanes = append(m.lanes, &lane{toDevice: true, seed: t.Seed})
	}
	if t.Direction != HostToDevice {
		m.lanes = append(m.lanes, &lane{seed: ^t.Seed})
	}
	for _, l := range m.lanes {
		if err := l.setUp(c, t, &m.undo); err != nil {
			return err
		}
	}
	if t.Gated && t.Memory != Pageable {
		if m.gate, err = c.newGate(&m.undo); err != nil {
			return err
		}
	}
	return c.SyncAll()
}

func (l *lane) setUp(c *Context, t Transfer, undo *cleanup) error {
	const piece = 1 << 20 // contiguous memory is filled and compared in pieces
	if l.block = t.BlockBytes; l.block == 0 {
		if l.block = t.Bytes; t.Bytes%piece == 0 {
			l.block = piece
		}
	}
	l.order = t.order(t.Bytes / l.block)
	var err error
	if l.host, err = c.AllocHost(t.Memory, t.Bytes); err != nil {
		return err
	}
	undo.add(func() error { return c.FreeHost(l.host) })
	if l.device, err = c.Alloc(uint64(t.Bytes)); err != nil {
		return err
	}
	undo.add(func() error { return c.Free(l.device) })
	if l.stream, err = c.NewStream(); err != nil {
		return err
	}
	undo.add(func() error { return c.DestroyStream(l.stream) })
	if l.stop, err = c.NewEvent(); err != nil {
		return err
	}
	undo.add(func() error { return c.DestroyEvent(l.stop) })
	l.digester, err = c.NewDigester(Pool{
		Planes: []Ptr{l.device}, Blocks: len(l.order), BlockStride: uint64(l.block), UnitBytes: uint64(l.block),
	}, len(l.order))
	if err != nil {
		return err
	}
	undo.add(func() error { return l.digester.Close(c) })

	// Source and destination are written here too so that every page exists.
	if l.toDevice {
		if err := l.hostPool().Fill(identity(len(l.order)), l.seed); err != nil {
			return err
		}
		return c.Set(l.device, poison, uint64(t.Bytes), l.stream)
	}
	for i := range l.host.Bytes {
		l.host.Bytes[i] = poison
	}
	return l.digester.Fill(c, l.order, l.seed)
}

func (l *lane) hostPool() kvsum.Pool {
	return kvsum.Pool{Planes: [][]byte{l.host.Bytes}, BlockStride: l.block, UnitBytes: l.block}
}

// enqueue puts copy i of a pass into the lane's stream.
func (l *lane) enqueue(c *Context, t Transfer, i int) error {
	at, n, device := 0, t.Bytes, l.device
	if t.BlockBytes > 0 {
		at, n = i*l.block, l.block
		device += Ptr(int(l.order[i]) * l.block)
	}
	if l.toDevice {
		return c.WriteAsync(device, l.host, at, n, l.stream)
	}
	return c.ReadAsync(l.host, at, n, device, l.stream)
}

// sample times some passes.
func (m *measurement) sample(c *Context, passes int, gated bool) (s TransferSample, err error) {
	first := m.lanes[0].stream
	if gated {
		m.gate.close()
		defer m.gate.open() // whatever happens: behind a closed gate the cleanup would hang
		if err := m.gate.hold(c, first); err != nil {
			return s, err
		}
	}
	if err := c.Record(m.start, first); err != nil {
		return s, err
	}
	for _, l := range m.lanes[1:] {
		if err := c.Wait(l.stream, m.start); err != nil {
			return s, err
		}
	}
	for range passes {
		for i := range m.transfer.copies() {
			for _, l := range m.lanes {
				if err := l.enqueue(c, m.transfer, i); err != nil {
					return s, err
				}
			}
		}
	}
	for _, l := range m.lanes {
		if err := c.Record(l.stop, l.stream); err != nil {
			return s, err
		}
	}
	if gated {
		m.gate.open()
	}
	s.Bytes = uint64(passes) * uint64(m.transfer.Bytes) * uint64(len(m.lanes))
	for _, l := range m.lanes {
		if err := c.SyncEvent(l.stop); err != nil {
			return s, err
		}
		took, err := c.Elapsed(m.start, l.stop)
		if err != nil {
			return s, err
		}
		took = max(took, time.Nanosecond)
		s.Span = max(s.Span, took)
		if l.toDevice {
			s.HostToDevice = took
		} else {
			s.DeviceToHost = took
		}
	}
	return s, nil
}

// verify compares what arrived with what the seed says.
func (m *measurement) verify(c *Context) error {
	for _, l := range m.lanes {
		want := kvsum.FilledTable(1, len(l.order), l.block, l.seed, verifySeed)
		var got kvsum.Table
		var err error
		if l.toDevice {
			got, err = l.digester.Sum(c, l.order, verifySeed)
		} else {
			got, err = l.hostPool().Sum(identity(len(l.order)), verifySeed)
		}
		if err != nil {
			return fmt.Errorf("verifying: %w", err)
		}
		if wrong := want.Diff(got); len(wrong) > 0 {
			return fmt.Errorf("verifying: %d of %d pieces of %d bytes differ from what was sent, the first is number %d",
				len(wrong), len(l.order), l.block, wrong[0].Block)
		}
	}
	return nil
}
