package ptxrun

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, statement, want string }{
		{"unknown instruction", "fma.rn.f32 %r3, %r1, %r2, %r3;", "unknown instruction"},
		{"float type", "add.f64 %rd3, %rd1, %rd2;", "unknown instruction"},
		{"unknown comparison", "setp.equ.u64 %p1, %rd1, %rd2;", "unknown instruction"},
		{"atomic without add", "atom.global.max.u64 %rd3, [%rd0], %rd1;", "unknown instruction"},
		{"vector of four", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];", `unknown qualifier "v4"`},
		{"vector without braces", "ld.global.v2.u64 %rd1, %rd2, [%rd0];", "braces"},
		{"too few operands", "add.s64 %rd3, %rd1;", "2 operands, want 3"},
		{"wide register", "add.s32 %rd3, %r1, %r2;", "%rd3 has 64 bits, the instruction wants 32"},
		{"narrow source", "add.s64 %rd3, %r1, %rd2;", "%r1 has 32 bits, the instruction wants 64"},
		{"narrow destination of a load", "ld.global.u64 %r1, [%rd0];", "%r1 has 32 bits, the instruction wants 64"},
		{"shift amount of 64 bits", "shl.b64 %rd3, %rd1, %rd2;", "%rd2 has 64 bits, the instruction wants 32"},
		{"number as predicate register", "selp.b64 %rd3, 1, 0, %r1;", "%r1 has 32 bits, the instruction wants 1"},
		{"guard that is no predicate", "@%r1 ret;", "%r1 has 32 bits"},
		{"undeclared register", "mov.u64 %rd8, 1;", "%rd8 is not declared"},
		{"undeclared class", "mov.u64 %q1, 1;", "%q1 is not declared"},
		{"special register written", "mov.u32 %tid.x, 1;", "%tid.x cannot be written"},
		{"address of 32 bits", "ld.global.u64 %rd3, [%r1];", "%r1 has 32 bits, the instruction wants 64"},
		{"unknown variable", "ld.shared.u64 %rd3, [elsewhere];", `no variable "elsewhere" in .shared`},
		{"unknown parameter", "ld.param.u64 %rd3, [k_param_3];", `no variable "k_param_3" in .param`},
		{"no operand", "mov.u64 %rd3, 1x;", `no operand: "1x"`},
		{"no label", "bra.uni $L9;", `jumping to "$L9": no such label`},
		{"unknown declaration", ".local .align 8 .b8 x[8];", "unknown declaration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(kernelOf(c.statement))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "parsing kernel k")
		})
	}
	_, err := Parse(".junk")
	require.EqualError(t, err, "parsing PTX: no .version line")
	_, err = Parse(header)
	require.EqualError(t, err, "parsing PTX: no .visible .entry")
}

func TestParseReadsTheShippedKernels(t *testing.T) {
	kernels := shipped(t)
	require.Equal(t, []int{8, 8, 8, 8, 8, 8, 8}, kernels["kvsum"].Params)
	require.Equal(t, []int{8, 8, 8, 8, 8}, kernels["kvfill"].Params)
	require.EqualValues(t, 256, kernels["kvsum"].MaxThreads)
}
