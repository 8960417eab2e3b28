// The device side of kvsum.cu. nvcc knows CUDA's words by itself; clang without
// a CUDA toolkit gets the few that are used from its own builtins.
#ifndef __NVCC__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
struct kv_dim {
	unsigned x, y, z;
};
#define threadIdx (kv_dim{(unsigned)__nvvm_read_ptx_sreg_tid_x(), 0, 0})
#define blockIdx                                      \
	(kv_dim{(unsigned)__nvvm_read_ptx_sreg_ctaid_x(), \
		(unsigned)__nvvm_read_ptx_sreg_ctaid_y(),     \
		(unsigned)__nvvm_read_ptx_sreg_ctaid_z()})
#define gridDim                                        \
	(kv_dim{(unsigned)__nvvm_read_ptx_sreg_nctaid_x(), \
		(unsigned)__nvvm_read_ptx_sreg_nctaid_y(),     \
		(unsigned)__nvvm_read_ptx_sreg_nctaid_z()})
#endif

// An address that was read from memory is generic to the compiler; these say
// that it is global, and LD128 that the data is streamed (.cs) past the cache.
#define LD128(at, a, b) \
	asm("ld.global.cs.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at))
static __device__ __forceinline__ unsigned kv_ld8(unsigned long long at)
{
	unsigned r;
	asm("ld.global.u8 %0, [%1];" : "=r"(r) : "l"(at));
	return r;
}
#define LD8(at) kv_ld8(at)
#define ST64(at, a) asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(a) : "memory")
#define ST8(at, a) asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(a) : "memory")

// atom and not red: ptxas emits the same code for an unused result, and more
// tools that read PTX know atom.
#define ATOMIC_ADD(p, x)                                 \
	do {                                                 \
		unsigned long long old_;                         \
		asm volatile("atom.global.add.u64 %0, [%1], %2;" \
			: "=l"(old_) : "l"(p), "l"(x) : "memory");   \
		(void)old_;                                      \
	} while (0)
