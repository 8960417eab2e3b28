package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary runs itself as another process, in one of the roles below.
const (
	roleVariable    = "KVPROOF_CUDA_CHILD"
	libraryVariable = "KVPROOF_CUDA_LIBRARY" // standin:PATH or driver:NAME
)

var roles = map[string]func(d *Driver, in *json.Decoder, out *json.Encoder) error{
	"cache-server": serveCache,
	"fault":        provokeFault,
}

// child plays a role and gives the exit code.
func child(role string) int {
	kind, name, _ := strings.Cut(os.Getenv(libraryVariable), ":")
	err := func() error {
		if kind != "standin" {
			d, err := LoadLibrary(name)
			if err != nil {
				return err
			}
			return roles[role](d, json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout))
		}
		s, err := connectStandIn(name)
		if err != nil {
			return err
		}
		err = roles[role](s.driver, json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout))
		if left := s.Left(); left != "" && err == nil && role != "fault" {
			err = errors.New(left)
		}
		return err
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", role, err)
		return 1
	}
	return 0
}

// startChild runs a role over a library; wait ends its input, waits, and fails
// the test unless it exited with 0.
func startChild(tb testing.TB, role, library string) (in *json.Encoder, out *json.Decoder, wait func()) {
	tb.Helper()
	self, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.CommandContext(tb.Context(), self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, libraryVariable+"="+library)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(tb, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	return json.NewEncoder(stdin), json.NewDecoder(stdout), func() {
		tb.Helper()
		require.NoError(tb, stdin.Close())
		rest, err := io.ReadAll(stdout)
		require.NoError(tb, err)
		require.NoError(tb, cmd.Wait(), "%s%s", rest, stderr.String())
	}
}

// A transferRequest is what a client tells a cache server: where its paged KV is
// in an exported allocation, and the event behind its writes.
type transferRequest struct {
	UUID        string
	Memory      IPCHandle
	Planes      []uint64 // offsets in the allocation
	BlockStride uint64
	UnitBytes   uint64
	Blocks      []uint32
	Event       IPCHandle
}

type transferReply struct{ Event IPCHandle }

// serveCache is a cache server for one client: it stores the blocks of the first
// request in memory of its own, copies them into the blocks of the second, and
// answers that one before the copies are done, with the event that says when.
func serveCache(d *Driver, in *json.Decoder, out *json.Encoder) error {
	var store, retrieve transferRequest
	if err := in.Decode(&store); err != nil {
		return err
	}
	ordinal, err := d.Find(store.UUID)
	if err != nil {
		return err
	}
	v, err := d.Open(ordinal)
	if err != nil {
		return err
	}
	return errors.Join(v.Do(func(c *Context) (err error) {
		var undo cleanup
		defer func() { undo.run(&err) }()
		base, err := c.OpenMemory(store.Memory)
		if err != nil {
			return err
		}
		undo.add(func() error { return c.CloseMemory(base) })
		written, err := c.OpenEvent(store.Event)
		if err != nil {
			return err
		}
		undo.add(func() error { return c.DestroyEvent(written) })
		units := len(store.Planes) * len(store.Blocks)
		own, err := c.Alloc(uint64(units) * store.UnitBytes)
		if err != nil {
			return err
		}
		undo.add(func() error { return c.Free(own) })
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		undo.add(func() error { return c.DestroyStream(s) })
		done, err := c.NewSharedEvent()
		if err != nil {
			return err
		}
		undo.add(func() error { return c.DestroyEvent(done) })

		if err := errors.Join(c.Wait(s, written), store.each(func(i, at uint64) error {
			return c.CopyAsync(own+Ptr(i*store.UnitBytes), base+Ptr(at), store.UnitBytes, s)
		}), c.Sync(s), out.Encode(transferReply{}), in.Decode(&retrieve)); err != nil {
			return err
		}
		if err := errors.Join(retrieve.each(func(i, at uint64) error {
			return c.CopyAsync(base+Ptr(at), own+Ptr(i*store.UnitBytes), store.UnitBytes, s)
		}), c.Record(done, s)); err != nil {
			return err
		}
		h, err := c.ExportEvent(done)
		// The client says when it has started to wait.
		return errors.Join(err, out.Encode(transferReply{Event: h}), in.Decode(&struct{}{}), c.Sync(s),
			out.Encode(transferReply{}), in.Decode(&struct{}{}))
	}), v.Close())
}

// each calls f with the number and the offset of every unit.
func (r transferRequest) each(f func(i, at uint64) error) error {
	i := uint64(0)
	for _, p := range r.Planes {
		for _, b := range r.Blocks {
			if err := f(i, p+uint64(b)*r.BlockStride); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// provokeFault makes a kernel read an illegal address and checks what is left of
// the device. It has a process of its own, which the fault ruins.
func provokeFault(d *Driver, _ *json.Decoder, _ *json.Encoder) error {
	v, err := d.Open(0)
	if err != nil {
		return err
	}
	err = v.Do(func(c *Context) error {
		p, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		g, err := c.NewDigester(Pool{Planes: []Ptr{p}, Blocks: 4, BlockStride: 1024, UnitBytes: 1024}, 1)
		if err != nil {
			return err
		}
		g.pool.BlockStride = 1 << 40
		return errors.Join(g.write(c, []uint32{1 << 20}), g.launchSum(c, 1), c.Sync(g.Stream))
	})
	if !errors.Is(err, IllegalAddress) {
		return fmt.Errorf("the fault gave %v", err)
	}
	var dead *DeadError
	if err := v.Do(func(*Context) error { return nil }); !errors.As(err, &dead) {
		return fmt.Errorf("after the fault Do gave %v", err)
	}
	return v.Close()
}
