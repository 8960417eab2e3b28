package cuda

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/standin"
)

// transfers cover each way, each kind of memory, contiguous and scattered, gated
// and not.
func transfers(bytes, block int) []Transfer {
	var out []Transfer
	for _, direction := range []Direction{HostToDevice, DeviceToHost, BothWays} {
		for _, memory := range []HostKind{Pinned, Pageable, Registered} {
			for _, block := range []int{0, block} {
				out = append(out, Transfer{
					Direction: direction, Memory: memory, Bytes: bytes, BlockBytes: block,
					Passes: 2, Samples: 3, Gated: true, Seed: 42,
				})
			}
		}
	}
	return out
}

// checkTransfers measures and checks what can be said about any device.
func checkTransfers(t *testing.T, v *Device, list []Transfer) {
	for _, transfer := range list {
		t.Run(fmt.Sprintf("%s %s %d in blocks of %d", transfer.Direction, transfer.Memory, transfer.Bytes, transfer.BlockBytes), func(t *testing.T) {
			var r TransferResult
			do(t, v, func(c *Context) (err error) { r, err = c.Measure(transfer); return err })
			require.Equal(t, transfer, r.Transfer)
			require.Len(t, r.Samples, transfer.Samples)
			require.Equal(t, transfer.Memory != Pageable, r.Gated)
			lanes := uint64(1)
			if transfer.Direction == BothWays {
				lanes = 2
			}
			for _, s := range r.Samples {
				require.Equal(t, lanes*uint64(transfer.Passes*transfer.Bytes), s.Bytes)
				require.Positive(t, s.Span)
				require.Equal(t, max(s.HostToDevice, s.DeviceToHost), s.Span)
				require.Equal(t, transfer.Direction != DeviceToHost, s.HostToDevice > 0)
				require.Equal(t, transfer.Direction != HostToDevice, s.DeviceToHost > 0)
			}
			require.Positive(t, r.Median())
		})
	}
}

func TestTransfers(t *testing.T) {
	_, v := openStandIn(t)
	checkTransfers(t, v, transfers(24<<10, 4<<10))
}

func TestTransferPlansItsPasses(t *testing.T) {
	for _, c := range []struct {
		name   string
		t      Transfer
		lanes  int
		gate   bool
		one    time.Duration
		passes int
		gated  bool
	}{
		{"as asked", Transfer{Passes: 7}, 1, false, time.Second, 7, false},
		{"ten milliseconds", Transfer{}, 1, false, time.Millisecond, 10, false},
		{"slow", Transfer{}, 1, false, time.Second, 1, false},
		{"too fast to time", Transfer{}, 1, false, 0, maxPasses, false},
		{"gated", Transfer{Gated: true}, 1, true, time.Microsecond, gatedCopies, true},
		{"gated both ways", Transfer{Gated: true}, 2, true, time.Microsecond, gatedCopies / 2, true},
		{"gated blocks", Transfer{Gated: true, Bytes: 4096, BlockBytes: 16}, 1, true, time.Microsecond, 2, true},
		{"more blocks than fit behind the gate", Transfer{Gated: true, Bytes: 16 * 513, BlockBytes: 16}, 1, true, 5 * time.Millisecond, 2, false},
		{"more passes than fit behind the gate", Transfer{Gated: true, Passes: 513}, 1, true, time.Second, 513, false},
		{"the device cannot wait", Transfer{Gated: true}, 1, false, time.Millisecond, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &measurement{transfer: c.t, lanes: make([]*lane, c.lanes)}
			if c.gate {
				m.gate = &gate{}
			}
			passes, gated := m.plan(c.one)
			require.Equal(t, c.passes, passes)
			require.Equal(t, c.gated, gated)
		})
	}
}

func TestTransferDefaults(t *testing.T) {
	_, v := openStandIn(t)
	var r TransferResult
	do(t, v, func(c *Context) (err error) {
		r, err = c.Measure(Transfer{Memory: Pinned, Bytes: 4096})
		return err
	})
	require.Len(t, r.Samples, 3)
	require.Equal(t, 3, r.Transfer.Samples)
	require.GreaterOrEqual(t, r.Transfer.Passes, 1)
	require.False(t, r.Gated)
}

func TestMedianKeepsTheSamplesInOrder(t *testing.T) {
	r := TransferResult{Samples: []TransferSample{
		{Bytes: 100, Span: time.Second}, {Bytes: 400, Span: time.Second}, {Bytes: 200, Span: time.Second},
	}}
	require.InDelta(t, 200, r.Median(), 1e-9)
	require.EqualValues(t, 400, r.Samples[1].Bytes)
	r.Samples = append(r.Samples, TransferSample{Bytes: 300, Span: time.Second})
	require.InDelta(t, 250, r.Median(), 1e-9)
}

func TestImpossibleTransfersAreRefused(t *testing.T) {
	_, v := openStandIn(t)
	for _, c := range []struct {
		transfer Transfer
		want     string
	}{
		{Transfer{}, "bytes 0"},
		{Transfer{Bytes: 100, BlockBytes: 30}, "measuring h2d of 100 bytes, pinned memory: blocks of 30 bytes do not divide it"},
		{Transfer{Bytes: 100, Samples: -1}, "samples -1"},
		{Transfer{Memory: Pageable, Bytes: 2 << 30}, "out of memory"},
	} {
		err := v.Do(func(c2 *Context) error { _, err := c2.Measure(c.transfer); return err })
		require.ErrorContains(t, err, c.want)
	}
}

// A copy that arrives wrong must be an error however fast it was.
func TestWrongCopiesAreNoResult(t *testing.T) {
	_, v := openStandIn(t)
	for _, direction := range []Direction{HostToDevice, DeviceToHost} {
		err := v.Do(func(c *Context) (err error) {
			m := &measurement{transfer: Transfer{Direction: direction, Memory: Pinned, Bytes: 8192, BlockBytes: 1024, Seed: 1}}
			defer func() { m.undo.run(&err) }()
			if err := m.setUp(c); err != nil {
				return err
			}
			if err := m.verify(c); !errorContains(err, "8 of 8 pieces of 1024 bytes differ") {
				return fmt.Errorf("before any copy: %w", err)
			}
			if _, err := m.sample(c, 1, false); err != nil {
				return err
			}
			if err := m.verify(c); err != nil {
				return fmt.Errorf("after the copy: %w", err)
			}
			l := m.lanes[0]
			if direction == DeviceToHost {
				l.host.Bytes[5*1024+3] ^= 1
			} else if err := c.Write(l.device+Ptr(int(l.order[5])*1024+3), []byte{0}); err != nil {
				return err
			}
			if err := m.verify(c); !errorContains(err, "1 of 8 pieces of 1024 bytes differ from what was sent, the first is number 5") {
				return fmt.Errorf("after a damage: %w", err)
			}
			return nil
		})
		require.NoError(t, err, direction)
	}
}

func TestFailedTransfersLeaveNothing(t *testing.T) {
	s, v := openStandIn(t)
	transfer := Transfer{Direction: BothWays, Memory: Registered, Bytes: 4096, BlockBytes: 1024, Passes: 1, Samples: 1, Gated: true}
	for call, times := range map[string]int{
		"cuMemAlloc_v2": 4, "cuMemHostAlloc": 3, "cuMemHostRegister_v2": 2, "cuStreamCreate": 5, "cuEventCreate": 3,
		"cuMemHostGetDevicePointer_v2": 1, "cuStreamWaitValue32_v2": 2, "cuStreamWaitEvent": 2, "cuEventRecord": 6,
		"cuEventSynchronize": 4, "cuEventElapsedTime": 4, "cuMemcpyHtoDAsync_v2": 8, "cuMemcpyDtoHAsync_v2": 8,
		"cuLaunchKernel": 2, "cuCtxSynchronize": 1,
	} {
		for skip := range times {
			s.Fail(call, int32(skip), int32(OutOfMemory))
			err := v.Do(func(c *Context) error { _, err := c.Measure(transfer); return err })
			require.ErrorIs(t, err, OutOfMemory, "%s failing after %d calls", call, skip)
			for i, kind := range standin.Kinds {
				if kind != "modules" && kind != "contexts" {
					require.Zero(t, s.Live(int32(i)), "%s left behind by %s failing after %d calls", kind, call, skip)
				}
			}
		}
	}
	t.Run("the device cannot wait for a value", func(t *testing.T) {
		s.Fail("cuStreamWaitValue32_v2", 0, int32(NotSupported))
		do(t, v, func(c *Context) error {
			r, err := c.Measure(transfer)
			if err == nil && r.Gated {
				err = errors.New("claims to be gated")
			}
			return err
		})
	})
}
