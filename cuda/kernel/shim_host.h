// The host side of kvsum.cu: runs the same source on the CPU, one ucontext per
// CUDA thread, so that __syncthreads is a switch back to the scheduler. It
// separates an error of the source from one of the compiler or the PTX.
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(n)
struct kv_dim {
	unsigned x, y, z;
};
static kv_dim threadIdx, blockIdx, gridDim;

#define LD128(at, a, b)                          \
	do {                                         \
		uint64_t v_[2];                          \
		memcpy(v_, (const void *)(at), 16);      \
		(a) = v_[0];                             \
		(b) = v_[1];                             \
	} while (0)
#define LD8(at) (*(const uint8_t *)(at))
#define ST64(at, a) (*(uint64_t *)(at) = (a))
#define ST8(at, a) (*(uint8_t *)(at) = (uint8_t)(a))
#define ATOMIC_ADD(p, x) (*(p) += (x))

enum { KV_THREADS = 256 };
static ucontext_t kv_main, kv_ctx[KV_THREADS];
static int kv_done[KV_THREADS];
static char kv_stack[KV_THREADS][16384];
static void (*kv_body)(void);

static inline void __syncthreads(void) { swapcontext(&kv_ctx[threadIdx.x], &kv_main); }

static void kv_entry(void)
{
	unsigned t = threadIdx.x;
	kv_body();
	kv_done[t] = 1;
	swapcontext(&kv_ctx[t], &kv_main);
}

// kv_run_cta starts all threads of one CTA and switches between them until all
// have returned.
static void kv_run_cta(void)
{
	for (unsigned t = 0; t < KV_THREADS; t++) {
		kv_done[t] = 0;
		getcontext(&kv_ctx[t]);
		kv_ctx[t].uc_stack.ss_sp = kv_stack[t];
		kv_ctx[t].uc_stack.ss_size = sizeof kv_stack[t];
		makecontext(&kv_ctx[t], kv_entry, 0);
	}
	for (unsigned alive = KV_THREADS; alive;)
		for (unsigned t = 0; t < KV_THREADS; t++)
			if (!kv_done[t]) {
				threadIdx = kv_dim{t, 0, 0};
				swapcontext(&kv_main, &kv_ctx[t]);
				alive -= kv_done[t];
			}
}

static void kv_run(const uint32_t *grid, void (*body)(void))
{
	kv_body = body;
	gridDim = kv_dim{grid[0], grid[1], grid[2]};
	for (unsigned z = 0; z < grid[2]; z++)
		for (unsigned y = 0; y < grid[1]; y++)
			for (unsigned x = 0; x < grid[0]; x++) {
				blockIdx = kv_dim{x, y, z};
				kv_run_cta();
			}
}
