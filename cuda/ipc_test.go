package cuda

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

// checkRoundTrip has another process store and retrieve KV through IPC handles:
// fill on the device, store, poison, retrieve into other blocks, checksum behind
// the server's event. early is called after the server's reply and before the
// wait, with the sums of that moment.
func checkRoundTrip(t *testing.T, d *Driver, library string, early func(filled, now kvsum.Table) error) {
	const planes, physical, unit, stride, lead = 4, 8, 1000, 1024, 4096
	v := openDevice(t, d)
	in, out, wait := startChild(t, "cache-server", library)
	do(t, v, func(c *Context) (err error) {
		var undo cleanup
		defer func() { undo.run(&err) }()
		const size = 2 << 20
		base, err := c.Alloc(size)
		if err != nil {
			return err
		}
		undo.add(func() error { return c.Free(base) })
		written, err := c.NewSharedEvent()
		if err != nil {
			return err
		}
		undo.add(func() error { return c.DestroyEvent(written) })

		pool := Pool{Blocks: physical, BlockStride: stride, UnitBytes: unit}
		request := transferRequest{UUID: v.Info.UUID.String(), BlockStride: stride, UnitBytes: unit, Blocks: []uint32{6, 0, 3}}
		for p := range planes {
			request.Planes = append(request.Planes, uint64(lead+p*physical*stride))
			pool.Planes = append(pool.Planes, base+Ptr(lead+p*physical*stride))
		}
		g, err := c.NewDigester(pool, 3)
		if err != nil {
			return err
		}
		undo.add(func() error { return g.Close(c) })

		const fillSeed, seed = 5, 6
		filled := kvsum.FilledTable(planes, 3, unit, fillSeed, seed)
		var offset, rest uint64
		if request.Memory, offset, rest, err = c.ExportMemory(pool.Planes[0]); err != nil {
			return err
		}
		if offset != lead || rest != size-lead {
			return fmt.Errorf("exported at offset %d with %d bytes behind, want %d and %d", offset, rest, lead, size-lead)
		}
		if _, err := c.OpenMemory(request.Memory); !errors.Is(err, InvalidContext) {
			return fmt.Errorf("opening an own handle gave %v", err)
		}
		if request.Event, err = c.ExportEvent(written); err != nil {
			return err
		}
		var reply transferReply
		err = errors.Join(g.Fill(c, request.Blocks, fillSeed), c.Record(written, g.Stream), c.Sync(g.Stream),
			in.Encode(request), out.Decode(&reply))
		if err != nil {
			return fmt.Errorf("storing: %w", err)
		}

		// Poison, and retrieve into other blocks.
		request.Blocks = []uint32{1, 7, 2}
		err = errors.Join(c.Set(base, 0xEE, size, g.Stream), c.Sync(g.Stream), in.Encode(request), out.Decode(&reply))
		if err != nil {
			return fmt.Errorf("retrieving: %w", err)
		}
		now, err := g.Sum(c, request.Blocks, seed)
		if err = errors.Join(err, early(filled, now)); err != nil {
			return err
		}
		done, err := c.OpenEvent(reply.Event)
		if err != nil {
			return err
		}
		undo.add(func() error { return c.DestroyEvent(done) })
		if err := errors.Join(c.Wait(g.Stream, done), g.Enqueue(c, request.Blocks, seed), in.Encode(struct{}{})); err != nil {
			return err
		}
		after, err := g.Collect(c)
		if diff := filled.Diff(after); err == nil && len(diff) > 0 {
			err = fmt.Errorf("retrieved KV differs at %v", diff)
		}
		// The server closes its mapping before this process frees the memory.
		return errors.Join(err, out.Decode(&reply), in.Encode(struct{}{}))
	})
	wait()
}

func TestRoundTripThroughAnotherProcess(t *testing.T) {
	s := useStandIn(t)
	checkRoundTrip(t, s.driver, "standin:"+s.Library, func(filled, now kvsum.Table) error {
		if n := len(filled.Diff(now)); n != len(filled.Sums) {
			return fmt.Errorf("%d of %d units are still poisoned when the server has answered: "+
				"the stand-in cannot show a missing wait", n, len(filled.Sums))
		}
		return nil
	})
}

func TestFaultInAnotherProcess(t *testing.T) {
	s := useStandIn(t)
	_, _, wait := startChild(t, "fault", "standin:"+s.Library)
	wait()
}

func TestHandlesAreRefused(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) (err error) {
		p, err := c.Alloc(64)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.Free(p) })
		e, err := c.NewEvent() // with timing, and so for this process alone
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.DestroyEvent(e) })
		if _, err := c.ExportEvent(e); !errorContains(err, "exporting an event: cuda: cuIpcGetEventHandle") {
			return fmt.Errorf("exporting a timing event gave %v", err)
		}
		if _, _, _, err := c.ExportMemory(64); !errors.Is(err, NotFound) {
			return fmt.Errorf("exporting no memory gave %v", err)
		}
		h, _, _, err := c.ExportMemory(p)
		if err != nil {
			return err
		}
		h.Data[63] ^= 1 // all 64 bytes arrive in C
		if _, err := c.OpenMemory(h); !errors.Is(err, InvalidHandle) {
			return fmt.Errorf("opening a damaged handle gave %v", err)
		}
		if _, err := c.OpenEvent(h); !errors.Is(err, InvalidHandle) {
			return fmt.Errorf("opening memory as an event gave %v", err)
		}
		return nil
	})
	require.Nil(t, v.Dead())
}
