package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) (err error) {
		free, total, err := c.MemoryInfo()
		if err != nil {
			return err
		}
		p, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.Free(p) })
		less, _, err := c.MemoryInfo()
		if err != nil || free-less != 4096 || total != 1<<30 {
			return fmt.Errorf("free %d, then %d of %d: %w", free, less, total, err)
		}
		base, size, err := c.AddressRange(p + 100)
		if err != nil || base != p || size != 4096 {
			return fmt.Errorf("range of %#x + 100: %#x, %d bytes: %w", p, base, size, err)
		}
		got := make([]byte, 16)
		err = errors.Join(c.Write(p, []byte("0123456789abcdef")), c.Copy(p+32, p+8, 8), c.Set(p+40, '-', 8, 0), c.Read(got, p+32))
		if err != nil || string(got) != "89abcdef--------" {
			return fmt.Errorf("got %q: %w", got, err)
		}
		if err := c.Read(got, p+4090); !errors.Is(err, InvalidValue) {
			return fmt.Errorf("reading past the end gave %v", err)
		}
		return nil
	})
	err := v.Do(func(c *Context) error { _, err := c.Alloc(2 << 30); return err })
	require.ErrorIs(t, err, OutOfMemory)
	require.ErrorContains(t, err, "allocating 2147483648 bytes on device 0")
	require.Nil(t, v.Dead())
}

func TestSynchronousCopiesHaveArrived(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) (err error) {
		p, err := c.Alloc(64)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.Free(p) })
		h, err := c.AllocHost(Pinned, 64)
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.FreeHost(h) })
		s, err := c.NewStream() // which does not wait for the default one
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.DestroyStream(s) })
		for _, step := range []struct {
			name string
			do   func() error
			want string
		}{
			{"Write", func() error { return c.Write(p, []byte("written.")) }, "written."},
			{"Copy", func() error { return errors.Join(c.Write(p+8, []byte("copied..")), c.Copy(p, p+8, 8)) }, "copied.."},
		} {
			err := errors.Join(step.do(), c.ReadAsync(h, 0, 8, p, s), c.Sync(s))
			if got := string(h.Bytes[:8]); err != nil || got != step.want {
				return fmt.Errorf("after %s another stream sees %q, want %q: %w", step.name, got, step.want, err)
			}
		}
		return nil
	})
}

// sharedMappings counts the mappings of Registered memory in this process; -1 if
// they cannot be read.
func sharedMappings() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return -1
	}
	return strings.Count(string(maps), "/dev/shm/kvproof-")
}

func TestHostMemory(t *testing.T) {
	s, v := openStandIn(t)
	for _, kind := range []HostKind{Pinned, Pageable, Registered} {
		t.Run(kind.String(), func(t *testing.T) {
			do(t, v, func(c *Context) (err error) {
				h, err := c.AllocHost(kind, 10000)
				if err != nil {
					return err
				}
				defer leave(&err, func() error { return c.FreeHost(h) })
				p, err := c.Alloc(10000)
				if err != nil {
					return err
				}
				defer leave(&err, func() error { return c.Free(p) })
				stream, err := c.NewStream()
				if err != nil {
					return err
				}
				defer leave(&err, func() error { return c.DestroyStream(stream) })
				for i := range h.Bytes {
					h.Bytes[i] = byte(i)
				}
				want := append(bytes.Repeat([]byte{7}, 500), h.Bytes[500:9500]...)
				err = errors.Join(c.Set(p, 7, 10000, stream), c.WriteAsync(p+500, h, 500, 9000, stream),
					c.ReadAsync(h, 0, 9500, p, stream), c.Sync(stream))
				if err == nil && !bytes.Equal(want, h.Bytes[:9500]) {
					err = errors.New("other bytes came back")
				}
				return err
			})
		})
	}
	t.Run("registering fails", func(t *testing.T) {
		s.Fail("cuMemHostRegister_v2", 0, int32(OutOfMemory))
		err := v.Do(func(c *Context) error { _, err := c.AllocHost(Registered, 4096); return err })
		require.ErrorIs(t, err, OutOfMemory)
		require.ErrorContains(t, err, "allocating 4096 bytes of registered host memory")
	})
	require.Zero(t, sharedMappings(), "mappings left behind")
	do(t, v, func(c *Context) error {
		h, err := c.AllocHost(Registered, 4096)
		if err == nil && sharedMappings() != 1 {
			err = errors.New("registered memory is no mapping of /dev/shm")
		}
		return errors.Join(err, c.FreeHost(h))
	})
}

func TestEventsMeasureTheDevicesTime(t *testing.T) {
	_, v := openStandIn(t)
	do(t, v, func(c *Context) (err error) {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.DestroyStream(s) })
		a, err := c.NewEvent()
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.DestroyEvent(a) })
		b, err := c.NewEvent()
		if err != nil {
			return err
		}
		defer leave(&err, func() error { return c.DestroyEvent(b) })
		if _, err := c.Elapsed(a, b); !errors.Is(err, InvalidHandle) {
			return fmt.Errorf("between events never recorded: %v", err)
		}
		if err := errors.Join(c.Record(a, s), c.Record(b, s)); err != nil {
			return err
		}
		if _, err := c.Elapsed(a, b); !errors.Is(err, NotReady) {
			return fmt.Errorf("between events not reached: %v", err)
		}
		forward, err1 := elapsed(c, a, b)
		backward, err2 := elapsed(c, b, a)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if forward < 0 || forward != -backward {
			return fmt.Errorf("forward %d, backward %d", forward, backward)
		}
		return nil
	})
}

// elapsed waits for the later event and gives the nanoseconds between both.
func elapsed(c *Context, a, b Event) (int64, error) {
	if err := errors.Join(c.SyncEvent(a), c.SyncEvent(b)); err != nil {
		return 0, err
	}
	d, err := c.Elapsed(a, b)
	return d.Nanoseconds(), err
}
