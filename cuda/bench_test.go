package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// openGPU opens device 0 of the real driver, or skips in one sentence.
func openGPU(tb testing.TB) *Device {
	tb.Helper()
	return openDevice(tb, loadGPU(tb))
}

func loadGPU(tb testing.TB) *Driver {
	tb.Helper()
	d, err := Load()
	if errors.Is(err, ErrNoDriver) {
		missing(tb, "%v: run this on a host with an NVIDIA GPU and driver", err)
	}
	require.NoError(tb, err)
	return d
}

// slug spells a power of two times a small number as benchmark names do.
func slug(n int) string {
	for _, u := range []struct {
		size int
		name string
	}{{1 << 30, "gib"}, {1 << 20, "mib"}, {1 << 10, "kib"}} {
		if n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%db", n)
}

// BenchmarkChecksum is the speed of the checksum beside the memory's own,
// measured in turn: a plain read on the CPU, a copy within the device (which
// reads and writes, and so counts twice) on the GPU.
func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{32 << 10, 256 << 20} {
		b.Run(fmt.Sprintf("device=cpu/unit=32kib/bytes=%s", slug(size)), func(b *testing.B) {
			benchmarkCPU(b, 32<<10, size)
		})
	}
	for _, size := range []int{64 << 20, 1 << 30} {
		b.Run(fmt.Sprintf("device=gpu/unit=32kib/bytes=%s", slug(size)), func(b *testing.B) {
			v := openGPU(b)
			var r checksumRates
			for b.Loop() {
				do(b, v, func(c *Context) (err error) { r, err = measureChecksum(c, 32<<10, size, 20); return err })
			}
			b.ReportMetric(float64(size)/r.checksum*1e9, "ns/op") // of one pass, by the device's clock
			b.ReportMetric(r.checksum/1e9, "GB/s")
			b.ReportMetric(r.memory/1e9, "memory-GB/s")
			b.ReportMetric(100*r.checksum/r.memory, "memory-%")
		})
	}
}

// benchmarkCPU counts the time of its thread on a processor and not the clock's,
// since it is about one core and must not depend on who else wants it.
func benchmarkCPU(b *testing.B, unit, size int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	memory := make([]byte, size)
	kvsum.Fill(memory, 0, 1)
	var sum, read time.Duration
	for b.Loop() {
		start := threadTime(b)
		for at := 0; at < size; at += unit {
			sink += kvsum.Sum(memory[at:at+unit], 1)
		}
		middle := threadTime(b)
		sink += readAll(memory)
		sum, read = sum+middle-start, read+threadTime(b)-middle
	}
	bytes := float64(size) * float64(b.N)
	b.ReportMetric(float64(sum)/float64(b.N), "ns/op")
	b.ReportMetric(bytes/sum.Seconds()/1e9, "GB/s")
	b.ReportMetric(bytes/read.Seconds()/1e9, "memory-GB/s")
	b.ReportMetric(100*read.Seconds()/sum.Seconds(), "memory-%")
}

// threadTime is how long the calling thread has run on any processor.
func threadTime(tb testing.TB) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		tb.Fatalf("reading the thread's processor time: %v", err)
	}
	return time.Duration(t.Nano())
}

var sink uint64

// readAll adds all words up, which is as fast as Go reads memory.
func readAll(p []byte) uint64 {
	var s0, s1, s2, s3 uint64
	for len(p) >= 32 {
		q := p[:32:32]
		s0 += binary.LittleEndian.Uint64(q)
		s1 += binary.LittleEndian.Uint64(q[8:])
		s2 += binary.LittleEndian.Uint64(q[16:])
		s3 += binary.LittleEndian.Uint64(q[24:])
		p = p[32:]
	}
	return s0 + s1 + s2 + s3
}

// checksumRates are bytes a second of the kernel and of the device's memory.
type checksumRates struct{ checksum, memory float64 }

// measureChecksum times passes of the kernel over size bytes, and as many copies
// within the device, each by the device's events. The sums must be right.
func measureChecksum(c *Context, unit, size, passes int) (r checksumRates, err error) {
	var undo cleanup
	defer func() { undo.run(&err) }()
	var memory [2]Ptr
	for i := range memory {
		if memory[i], err = c.Alloc(uint64(size)); err != nil {
			return r, err
		}
		undo.add(func() error { return c.Free(memory[i]) })
	}
	blocks := identity(size / unit)
	g, err := c.NewDigester(Pool{
		Planes: []Ptr{memory[0]}, Blocks: len(blocks), BlockStride: uint64(unit), UnitBytes: uint64(unit),
	}, len(blocks))
	if err != nil {
		return r, err
	}
	undo.add(func() error { return g.Close(c) })
	var events [2]Event
	for i := range events {
		if events[i], err = c.NewEvent(); err != nil {
			return r, err
		}
		undo.add(func() error { return c.DestroyEvent(events[i]) })
	}
	timed := func(f func() error) (time.Duration, error) {
		err := errors.Join(f(), c.Record(events[0], g.Stream)) // the first pass warms up
		for range passes {
			err = errors.Join(err, f())
		}
		if err = errors.Join(err, c.Record(events[1], g.Stream), c.Sync(g.Stream)); err != nil {
			return 0, err
		}
		return c.Elapsed(events[0], events[1])
	}
	const fillSeed, seed = 1, 2
	if err := g.Fill(c, blocks, fillSeed); err != nil {
		return r, err
	}
	sums, err := timed(func() error { return g.launchSum(c, seed) })
	if err != nil {
		return r, err
	}
	copies, err := timed(func() error { return c.CopyAsync(memory[1], memory[0], uint64(size), g.Stream) })
	if err != nil {
		return r, err
	}
	got, err := g.Sum(c, blocks, seed)
	if err != nil {
		return r, err
	}
	if wrong := kvsum.FilledTable(1, len(blocks), unit, fillSeed, seed).Diff(got); len(wrong) > 0 {
		return r, fmt.Errorf("%d of %d units have wrong sums", len(wrong), len(blocks))
	}
	bytes := float64(size) * float64(passes)
	return checksumRates{bytes / sums.Seconds(), 2 * bytes / copies.Seconds()}, nil
}

func TestMeasuredChecksum(t *testing.T) {
	_, v := openStandIn(t)
	var r checksumRates
	do(t, v, func(c *Context) (err error) { r, err = measureChecksum(c, 4096, 16<<10, 2); return err })
	require.Positive(t, r.checksum)
	require.Positive(t, r.memory)
}

// anchorBytes is 1.208 GB, the transfer that the field quotes at 21.8 ms.
const anchorBytes = 1152 << 20

var transferSizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, anchorBytes}

// BenchmarkTransfer is the roofline of KV loads: what host and device can move,
// verified, by the device's clock. GB/s counts both directions together.
func BenchmarkTransfer(b *testing.B) {
	v := openGPU(b)
	for _, direction := range []Direction{HostToDevice, DeviceToHost, BothWays} {
		for _, size := range transferSizes {
			for _, memory := range []HostKind{Pinned, Pageable, Registered} {
				for _, pages := range []string{"contiguous", "scattered"} {
					name := fmt.Sprintf("dir=%s/size=%s/mem=%s/pages=%s", direction, slug(size), memory, pages)
					b.Run(name, func(b *testing.B) {
						t := Transfer{Direction: direction, Memory: memory, Bytes: size, Gated: true, Seed: 1}
						if pages == "scattered" {
							t.BlockBytes = 32 << 10 // a block of 16 tokens, 8 heads of 128, fp16
						}
						benchmarkTransfer(b, v, t)
					})
				}
			}
		}
	}
}

func benchmarkTransfer(b *testing.B, v *Device, t Transfer) {
	var r TransferResult
	for b.Loop() {
		do(b, v, func(c *Context) (err error) { r, err = c.Measure(t); return err })
	}
	bytes := float64(t.Bytes)
	if t.Direction == BothWays {
		bytes *= 2
	}
	b.ReportMetric(bytes/r.Median()*1e9, "ns/op") // of one pass
	b.ReportMetric(r.Median()/1e9, "GB/s")
	b.ReportMetric(bytes/r.Median()*1e6/float64(t.copies()), "us/copy")
}
