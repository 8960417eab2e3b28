package cuda

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/kvsum"
)

//go:embed kernel
var kernelSource embed.FS

// unpackKernel writes the kernel's sources to a directory of their own.
func unpackKernel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, kernelSource))
	return filepath.Join(dir, "kernel")
}

func TestPTXIsOfThisSource(t *testing.T) {
	hash := sha256.New()
	for _, name := range []string{"kvsum.cu", "shim_device.h"} {
		text, err := kernelSource.ReadFile("kernel/" + name)
		require.NoError(t, err)
		hash.Write(text)
	}
	want := fmt.Sprintf("// source sha256 %x\n", hash.Sum(nil))
	require.True(t, bytes.HasPrefix(kernels, []byte(want)), "kvsum.ptx is not of the present source: go generate ./cuda\nwant %s", want)
}

func TestPTXIsForOldDriversAndChips(t *testing.T) {
	require.Regexp(t, `(?m)^\.version 6\.0$`, string(kernels))
	require.Regexp(t, `(?m)^\.target sm_70$`, string(kernels))
}

func TestPTXIsGeneratedAgain(t *testing.T) {
	if _, err := exec.LookPath("clang-19"); err != nil {
		missing(t, "no clang-19, which generates the PTX: apt-get install clang-19")
	}
	out := filepath.Join(t.TempDir(), "kvsum.ptx")
	log, err := exec.Command("sh", filepath.Join(unpackKernel(t), "build.sh"), out).CombinedOutput()
	require.NoError(t, err, "%s", log)
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	wantHead, wantText := splitCompiler(t, kernels)
	head, text := splitCompiler(t, again)
	if !bytes.Equal(head, wantHead) && !bytes.Equal(text, wantText) {
		t.Skipf("the PTX is of %q, here is %q, whose text differs", wantHead, head)
	}
	require.True(t, bytes.Equal(text, wantText), "generating the PTX again gives another text: go generate ./cuda")
}

// splitCompiler parts the line that names the compiler from the text below it.
func splitCompiler(t *testing.T, ptx []byte) (compiler, text []byte) {
	lines := bytes.SplitN(ptx, []byte("\n"), 3)
	require.Len(t, lines, 3)
	return lines[1], lines[2]
}

// findPTXAS is NVIDIA's assembler: $PTXAS, or ptxas on the path.
func findPTXAS(t *testing.T) string {
	if path := os.Getenv("PTXAS"); path != "" {
		return path
	}
	path, err := exec.LookPath("ptxas")
	if err != nil {
		missing(t, "no ptxas, which assembles the PTX: export PTXAS=$(sh cuda/scripts/ptxas.sh)")
	}
	return path
}

var ptxasRE = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads|Used (\d+) registers`)

func TestPTXAssembles(t *testing.T) {
	ptxas := findPTXAS(t)
	source := filepath.Join(t.TempDir(), "kvsum.ptx")
	require.NoError(t, os.WriteFile(source, kernels, 0o600))
	for _, arch := range []string{"sm_80", "sm_90", "sm_100", "sm_120"} {
		t.Run(arch, func(t *testing.T) {
			out, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", filepath.Join(t.TempDir(), "cubin"), source).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NotContains(t, string(out), "warning")
			found := ptxasRE.FindAllStringSubmatch(string(out), -1)
			require.Len(t, found, 4, "spills and registers of two kernels in:\n%s", out)
			for _, m := range found {
				if m[3] == "" {
					require.Equal(t, []string{"0", "0"}, m[1:3], "%s", out)
					continue
				}
				registers, err := strconv.Atoi(m[3])
				require.NoError(t, err)
				// 65,536 registers over 40 leave 1,536 threads, three quarters of a full SM.
				require.LessOrEqual(t, registers, 40, "%s", out)
			}
		})
	}
}

// TestKernelSourceOnTheCPU runs the CUDA source itself, compiled for the host:
// it tells an error of the source from one of the compiler or the executor.
func TestKernelSourceOnTheCPU(t *testing.T) {
	if raceEnabled {
		t.Skip("the kernel switches stacks, which the race detector does not follow")
	}
	if _, err := exec.LookPath("c++"); err != nil {
		missing(t, "no C++ compiler (c++), which builds the kernels for the host: apt-get install g++")
	}
	library := filepath.Join(t.TempDir(), "kernels.so")
	out, err := exec.Command("c++", "-O2", "-Wall", "-Wno-unknown-pragmas", "-Werror", "-shared", "-fPIC",
		"-o", library, filepath.Join(unpackKernel(t), "host.cpp")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	var launch func(name string, grid *[3]uint32, params *uint64, n uintptr) int32
	purego.RegisterLibFunc(&launch, handle, "kv_host_launch")

	r := rand.New(rand.NewPCG(1, 2))
	shapes := append([]shape(nil), borderShapes...)
	for range 100 {
		shapes = append(shapes, randomShape(r))
	}
	for _, s := range shapes {
		device := &HostMemory{Bytes: make([]byte, s.size()+64)}
		address := func(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }
		base := (address(unsafe.Pointer(&device.Bytes[0])) + 15) &^ 15
		memory := device.Bytes[base-address(unsafe.Pointer(&device.Bytes[0])):][:s.size()]
		kvsum.Fill(memory, r.Uint64(), 0)
		host := kvsum.Pool{BlockStride: s.stride(), UnitBytes: s.unit}
		pool := Pool{Planes: make([]Ptr, s.planes), UnitBytes: uint64(s.unit)}
		planes := make([]uint64, s.planes)
		for p := range planes {
			at := s.offset + p*s.physical*s.stride()
			planes[p] = base + uint64(at)
			host.Planes = append(host.Planes, memory[at:at+s.physical*s.stride()])
		}
		blocks := identity(s.physical)[s.physical-s.blocks:]
		sums, seed := make([]uint64, s.planes*s.blocks), r.Uint64()
		grid, slice := pool.grid(s.blocks)
		p0, i0 := address(unsafe.Pointer(&planes[0])), address(unsafe.Pointer(&blocks[0]))
		params := []uint64{address(unsafe.Pointer(&sums[0])), p0, i0, uint64(s.stride()), uint64(s.unit), slice, seed}
		require.Zero(t, launch("kvsum", &grid, &params[0], 56))
		want, err := host.Sum(blocks, seed)
		require.NoError(t, err)
		require.Equal(t, want.Sums, sums, s.String())

		params = []uint64{p0, i0, uint64(s.stride()), uint64(s.unit), seed}
		require.Zero(t, launch("kvfill", &grid, &params[0], 40))
		got := string(memory)
		require.NoError(t, host.Fill(blocks, seed))
		require.True(t, got == string(memory), "fill of %v", s)
	}
	require.NotZero(t, launch("unknown", &[3]uint32{1, 1, 1}, new(uint64), binary.MaxVarintLen64))
}
