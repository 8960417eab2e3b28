package ptxrun

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const header = ".version 6.0\n.target sm_70\n.address_size 64\n"

// kernelOf wraps a body into a module with one kernel k(out u64, a u64, b u64).
func kernelOf(body string) string {
	return header + `.visible .entry k(
	.param .u64 k_param_0,
	.param .u64 k_param_1,
	.param .u64 k_param_2
)
.maxntid 64, 1, 1
{
	.reg .pred %p<4>;
	.reg .b16 %rs<4>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	.shared .align 8 .b8 scratch[64];
	ld.param.u64 %rd0, [k_param_0];
	ld.param.u64 %rd1, [k_param_1];
	ld.param.u64 %rd2, [k_param_2];
	cvt.u32.u64 %r1, %rd1;
	cvt.u32.u64 %r2, %rd2;
` + body + `
	ret;
}
`
}

// run executes a body on threads threads and returns the eight words of out.
func run(t *testing.T, body string, threads uint32, a, b uint64) ([8]uint64, error) {
	t.Helper()
	kernels, err := Parse(kernelOf(body))
	require.NoError(t, err)
	return runParsed(kernels["k"], threads, a, b)
}

func runParsed(k *Kernel, threads uint32, a, b uint64) (words [8]uint64, err error) {
	out := make([]byte, 64)
	var params []byte
	for _, p := range []uint64{outAddr, a, b} {
		params = binary.LittleEndian.AppendUint64(params, p)
	}
	_, err = k.Run(Launch{
		Grid: Dim{1, 1, 1}, Block: Dim{threads, 1, 1}, Params: params,
		Memory: Memory{{outAddr, out}}, Limit: 10000, Junk: bigJunk,
	})
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(out[8*i:])
	}
	return words, err
}

func TestInstructions(t *testing.T) {
	const minus5 = math.MaxUint64 - 4
	const result64, result32 = "\nst.global.u64 [%rd0], %rd3;", "\nst.global.u32 [%rd0], %r3;"
	choose := "\nselp.b64 %rd3, 1, 0, %p1;" + result64
	for _, c := range []struct {
		body string
		a, b uint64
		want uint64
	}{
		{"mov.u64 %rd3, -7;" + result64, 0, 0, math.MaxUint64 - 6},
		{"mov.u32 %r3, -7;" + result32, 0, 0, math.MaxUint32 - 6},
		{"add.s64 %rd3, %rd1, %rd2;" + result64, minus5, 9, 4},
		{"add.s32 %r3, %r1, %r2;" + result32, math.MaxUint32, 2, 1},
		{"sub.s64 %rd3, %rd1, %rd2;" + result64, 2, 7, minus5},
		{"mul.lo.s64 %rd3, %rd1, %rd2;" + result64, minus5, 3, math.MaxUint64 - 14},
		{"mul.wide.u32 %rd3, %r1, %r2;" + result64, math.MaxUint32, 3, 3 * math.MaxUint32},
		{"mul.wide.s32 %rd3, %r1, %r2;" + result64, math.MaxUint32, 3, math.MaxUint64 - 2},
		{"mad.lo.s32 %r3, %r1, %r2, 5;" + result32, 10, 20, 205},
		{"and.b64 %rd3, %rd1, %rd2;" + result64, 12, 10, 8},
		{"or.b64 %rd3, %rd1, %rd2;" + result64, 12, 10, 14},
		{"xor.b64 %rd3, %rd1, %rd2;" + result64, 12, 10, 6},
		{"not.b32 %r3, %r1;" + result32, 1, 0, math.MaxUint32 - 1},
		{"shl.b64 %rd3, %rd1, %r2;" + result64, 3, 63, 1 << 63},
		{"shl.b64 %rd3, %rd1, %r2;" + result64, 3, 64, 0},
		{"shl.b32 %r3, %r1, 31;" + result32, 3, 0, 1 << 31},
		{"shr.u64 %rd3, %rd1, %r2;" + result64, minus5, 60, 15},
		{"shr.u64 %rd3, %rd1, %r2;" + result64, minus5, 200, 0},
		{"shr.s64 %rd3, %rd1, %r2;" + result64, minus5, 200, math.MaxUint64},
		{"shr.s32 %r3, %r1, 4;" + result32, 0x80000000, 0, 0xf8000000},
		{"min.u64 %rd3, %rd1, %rd2;" + result64, minus5, 3, 3},
		{"min.s64 %rd3, %rd1, %rd2;" + result64, minus5, 3, minus5},
		{"max.u64 %rd3, %rd1, %rd2;" + result64, minus5, 3, minus5},
		{"max.s64 %rd3, %rd1, %rd2;" + result64, minus5, 3, 3},
		{"cvt.u64.u32 %rd3, %r1;" + result64, math.MaxUint64, 0, math.MaxUint32},
		{"cvt.s64.s32 %rd3, %r1;" + result64, 0x80000000, 0, 0xffffffff80000000},
		{"cvt.u32.u64 %r3, %rd1;" + result32, 0x123456789, 0, 0x23456789},
		{"setp.eq.s64 %p1, %rd1, %rd2;" + choose, 4, 4, 1},
		{"setp.ne.s64 %p1, %rd1, %rd2;" + choose, 4, 4, 0},
		{"setp.lt.u64 %p1, %rd1, %rd2;" + choose, minus5, 4, 0},
		{"setp.lt.s64 %p1, %rd1, %rd2;" + choose, minus5, 4, 1},
		{"setp.le.u64 %p1, %rd1, %rd2;" + choose, 4, 4, 1},
		{"setp.gt.u64 %p1, %rd1, %rd2;" + choose, 4, 4, 0},
		{"setp.gt.s32 %p1, %r1, %r2;" + choose, minus5, 4, 0},
		{"setp.ge.u64 %p1, %rd1, %rd2;" + choose, 4, 4, 1},
		{"setp.ge.u64 %p1, %rd1, %rd2;" + choose, 3, 4, 0},
		{"setp.eq.s64 %p1, %rd1, 1;\nsetp.eq.s64 %p2, %rd2, 1;\nor.pred %p1, %p1, %p2;" + choose, 0, 1, 1},
		{"mov.u64 %rd3, 8;\nsetp.eq.s64 %p1, %rd1, 1;\n@%p1 bra $L1;\nmov.u64 %rd3, 9;\n$L1:" + result64, 1, 0, 8},
		{"mov.u64 %rd3, 8;\nsetp.eq.s64 %p1, %rd1, 1;\n@!%p1 bra $L1;\nmov.u64 %rd3, 9;\n$L1:" + result64, 1, 0, 9},
		{"st.global.u64 [%rd0], %rd1;\nld.global.u8 %r3, [%rd0+1];" + result32, 0x85ff, 0, 0x85},
		{"st.global.u64 [%rd0], %rd1;\nld.global.s8 %r3, [%rd0+1];" + result32, 0x85ff, 0, 0xffffff85},
		{"st.global.u8 [%rd0+2], %r1;", 0x1234, 0, 0x340000},
		{"st.global.u64 [%rd0], %rd1;\natom.global.add.u64 %rd4, [%rd0], %rd2;", 40, 2, 42},
		{"st.global.u64 [%rd0], %rd1;\natom.global.add.u64 %rd3, [%rd0], %rd2;" + result64, 40, 2, 40},
		{"st.global.v2.u64 [%rd0], {%rd1, %rd2};\nld.global.cs.v2.u64 {%rd4, %rd3}, [%rd0];" + result64, 40, 2, 2},
		{"st.shared.u64 [scratch+8], %rd1;\nmov.u64 %rd5, scratch;\nld.shared.u64 %rd3, [%rd5+8];" + result64, 77, 0, 77},
	} {
		t.Run(strings.ReplaceAll(c.body, "\n", " "), func(t *testing.T) {
			out, err := run(t, c.body, 1, c.a, c.b)
			require.NoError(t, err)
			require.Equal(t, c.want, out[0], "a = %#x, b = %#x", c.a, c.b)
		})
	}
}

func TestThreadsExchangeThroughSharedMemory(t *testing.T) {
	const body = `
	mov.u32 %r3, %tid.x;
	mul.wide.u32 %rd3, %r3, 8;
	mov.u64 %rd4, scratch;
	add.s64 %rd5, %rd4, %rd3;
	cvt.u64.u32 %rd6, %r3;
	st.shared.u64 [%rd5], %rd6;
	bar.sync 0;
	xor.b64 %rd3, %rd3, 8;
	add.s64 %rd5, %rd4, %rd3;
	ld.shared.u64 %rd6, [%rd5];
	mul.wide.u32 %rd3, %r3, 8;
	add.s64 %rd0, %rd0, %rd3;
	st.global.u64 [%rd0], %rd6;`
	out, err := run(t, body, 8, 0, 0)
	require.NoError(t, err)
	require.Equal(t, [8]uint64{1, 0, 3, 2, 5, 4, 7, 6}, out)

	_, err = run(t, strings.Replace(body, "bar.sync 0;", "", 1), 8, 0, 0)
	require.ErrorContains(t, err, "since the last barrier")
}

func TestRunRefusesWhatADeviceFaultsOn(t *testing.T) {
	for _, c := range []struct {
		name, body string
		threads    uint32
		want       string
	}{
		{"address in no region", "mov.u64 %rd3, 64;\nld.global.u64 %rd4, [%rd3];", 1, "illegal global address 0x40"},
		{"just past the end", "ld.global.u64 %rd4, [%rd0+64];", 1, "illegal global address"},
		{"vector past the end", "add.s64 %rd3, %rd0, 64;\nst.global.v2.u64 [%rd3], {%rd1, %rd2};", 1, "illegal global address"},
		{"misaligned vector", "ld.global.v2.u64 {%rd4, %rd5}, [%rd0+8];", 1, "not a multiple of 16"},
		{"uninitialised address", "ld.global.u64 %rd4, [%rd7];", 1, "not a multiple of 8"},
		{"shared past the end", "mov.u64 %rd3, scratch;\nld.shared.u64 %rd4, [%rd3+64];", 1, "illegal shared address"},
		{"more parameters than there are", "ld.param.u64 %rd4, [k_param_2+8];", 1, "illegal param address"},
		{"barrier in one branch", "mov.u32 %r3, %tid.x;\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra $L1;\nbar.sync 0;\n$L1:", 8, "barrier reached by 7 of 8 threads"},
		{"endless loop", "$L1:\nbra.uni $L1;", 1, "over the limit of 10000 instructions"},
		{"too many threads", "", 65, "over .maxntid 64"},
		{"no threads", "", 0, "empty grid"},
		{"two writers of a shared word", "mov.u64 %rd3, scratch;\nst.shared.u64 [%rd3], %rd1;", 2, "was written by thread 0"},
		{"write after another's read", "mov.u32 %r3, %tid.x;\nmov.u64 %rd3, scratch;\nsetp.eq.s32 %p1, %r3, 1;\nld.shared.u64 %rd4, [%rd3];\n@%p1 st.shared.u64 [%rd3], %rd1;", 2, "was read by another thread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, c.body, c.threads, 0, 0)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRunChecksTheParameterBlock(t *testing.T) {
	kernels, err := Parse(kernelOf(""))
	require.NoError(t, err)
	_, err = kernels["k"].Run(Launch{Grid: Dim{1, 1, 1}, Block: Dim{1, 1, 1}, Params: make([]byte, 16)})
	require.EqualError(t, err, "launching k: 16 bytes of parameters, want 24")
}
