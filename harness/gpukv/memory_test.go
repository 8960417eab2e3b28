package gpukv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

func newMemory(t *testing.T, driver *cuda.Driver, spec string) *Memory {
	t.Helper()
	shape, err := lmcmp.ParseShape(spec)
	require.NoError(t, err)
	m, err := New(driver, 0, shape)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// written writes content and waits.
func written(t *testing.T, m *Memory, blocks []int, c lmcmp.Content) {
	t.Helper()
	event, err := m.Write(blocks, c)
	require.NoError(t, err)
	require.NoError(t, m.Wait(event))
}

// shapes are K and V, MLA, and two groups with units that are no multiple of a
// word.
var shapes = []string{"(2,16,4,2,8):float16:3", "(1,16,4,1,9):bfloat16:2", "(2,9,3,1,5):uint8:2;(1,9,3,1,7):float16:1"}

// What is on the device is what memory of the host has in the same place: of
// both, content is of the same bytes.
func TestContentIsThatOfHostMemory(t *testing.T) {
	_, driver := useStandIn(t)
	for _, spec := range shapes {
		t.Run(spec, func(t *testing.T) {
			m := newMemory(t, driver, spec)
			content, blocks := lmcmp.Content{Seed: 7, First: 3}, []int{4, 5, 6, 2, 8}
			written(t, m, blocks, content)
			require.Equal(t, m.shape.Layers(), len(m.tensors))
			layer := 0
			for _, g := range m.groups {
				n := g.BlockBytes()
				for range g.Layers {
					all := make([]byte, g.LayerBytes())
					at := g.planes[(layer-g.first)*g.Planes]
					require.NoError(t, m.device.Do(func(c *cuda.Context) error { return c.Read(all, at) }))
					for plane := range g.Planes {
						for i, id := range blocks {
							from := (plane*g.Blocks + id) * n
							require.Equal(t, content.Block(layer, plane, content.First+i, n), all[from:from+n], "layer %d plane %d block %d", layer, plane, id)
						}
					}
					layer++
				}
			}
			found, err := m.Verify(blocks, content)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
}

// Each byte that is changed anywhere is found, with its place; nothing is found
// where nothing was changed.
func TestDamageIsNamed(t *testing.T) {
	_, driver := useStandIn(t)
	for _, spec := range shapes {
		t.Run(spec, func(t *testing.T) {
			m := newMemory(t, driver, spec)
			content, blocks := lmcmp.Content{Seed: 11}, []int{6, 1, 3}
			written(t, m, blocks, content)
			for number, g := range m.groups {
				n := g.BlockBytes()
				for p, at := range g.planes {
					position, offset := (p+number)%len(blocks), (13*p+5)%n
					place := at + cuda.Ptr(blocks[position]*n+offset)
					right := content.Block(g.first+p/g.Planes, p%g.Planes, position, n)[offset]
					set := func(b byte) {
						require.NoError(t, m.device.Do(func(c *cuda.Context) error { return c.Write(place, []byte{b}) }))
					}
					set(right ^ 4)
					found, err := m.Verify(blocks, content)
					require.NoError(t, err)
					require.Equal(t, []lmcmp.Mismatch{{
						Layer: g.first + p/g.Planes, Plane: p % g.Planes, Position: position, Block: blocks[position],
						Byte: offset, Want: right, Got: right ^ 4, Looks: "one bit flipped",
					}}, found)
					set(right)
				}
			}
			found, err := m.Verify(blocks, content)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
}

// Poison reaches the blocks that were named, and no other.
func TestPoison(t *testing.T) {
	_, driver := useStandIn(t)
	m := newMemory(t, driver, shapes[0])
	content := lmcmp.Content{Seed: 3}
	kept, poisoned := []int{1, 4, 9}, []int{2, 3, 5}
	written(t, m, append(append([]int{}, kept...), poisoned...), content)
	event, err := m.Poison(poisoned)
	require.NoError(t, err)
	require.NoError(t, m.Wait(event))
	found, err := m.Verify(kept, content)
	require.NoError(t, err)
	require.Empty(t, found)
	found, err = m.Verify(poisoned, lmcmp.Content{Seed: 3, First: 3})
	require.NoError(t, err)
	require.Len(t, found, lmcmp.MaxMismatches)
	require.Equal(t, "not written at all", found[0].Looks)
}

// A comparison comes behind what was put into the memory before, waited for or
// not.
func TestVerifyIsBehindWrites(t *testing.T) {
	_, driver := useStandIn(t)
	m := newMemory(t, driver, shapes[0])
	content := lmcmp.Content{Seed: 4}
	_, err := m.Write([]int{2, 3}, content)
	require.NoError(t, err)
	found, err := m.Verify([]int{2, 3}, content)
	require.NoError(t, err)
	require.Empty(t, found)
}

// Content that does not fit into the staging memory goes through it in pieces.
func TestWriteInPieces(t *testing.T) {
	_, driver := useStandIn(t)
	m := newMemory(t, driver, shapes[0])
	all := m.staging.Bytes
	m.staging.Bytes = all[:300] // two blocks and a part
	content, blocks := lmcmp.Content{Seed: 5}, []int{1, 2, 3, 4, 5, 9, 8}
	written(t, m, blocks, content)
	m.staging.Bytes = all
	found, err := m.Verify(blocks, content)
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestRefusals(t *testing.T) {
	s, driver := useStandIn(t)
	m := newMemory(t, driver, shapes[0])
	_, err := m.Write([]int{1, 16}, lmcmp.Content{})
	require.ErrorContains(t, err, "block 16 of 16")
	_, err = m.Poison([]int{-1})
	require.ErrorContains(t, err, "block -1 of 16")
	_, err = m.Verify([]int{99}, lmcmp.Content{})
	require.ErrorContains(t, err, "block 99 of 16")
	require.ErrorContains(t, m.Wait([]byte("stub_ipc_handle")), "a server without a GPU has none")
	require.ErrorContains(t, m.Wait(make([]byte, 64)), "opening another process's event")

	large, err := lmcmp.ParseShape("(2,65536,16,8,128):float16:32")
	require.NoError(t, err)
	_, err = New(driver, 0, large)
	require.ErrorContains(t, err, "are free")

	// Every call that can fail is made to, and nothing is left behind.
	for _, call := range []string{"cuMemAlloc_v2", "cuStreamCreate", "cuMemHostAlloc", "cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord", "cuIpcGetMemHandle"} {
		before := []int32{s.Live(0), s.Live(2), s.Live(4), s.Live(5)}
		s.Fail(call, 0, 2)
		_, err := New(driver, 0, m.shape)
		require.ErrorContains(t, err, call)
		require.Equal(t, before, []int32{s.Live(0), s.Live(2), s.Live(4), s.Live(5)}, call)
	}
}

// Workers are dealt to the devices in turn.
func TestWorkersAndDevices(t *testing.T) {
	_, driver := useStandIn(t)
	shape, err := lmcmp.ParseShape(shapes[0])
	require.NoError(t, err)
	for worker, want := range []int{0, 1, 0} {
		m, err := New(driver, worker, shape)
		require.NoError(t, err)
		require.Equal(t, want, m.device.Info.Ordinal)
		require.NoError(t, m.Close())
		require.NoError(t, m.Close(), "again")
	}
}
