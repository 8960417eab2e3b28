// kvsum and kvfill: the checksum of paged KV blocks, and a fill that it can be
// predicted for. The specification is the comment of Go package cuda/kvsum.
//
// A unit is one physical block of one plane (K, V or the fused latent) of one
// layer. Unit (plane, b) starts at planes[plane] + ids[b]*block_stride and has
// unit_bytes bytes; its sum is
//
//	sum over i of mix64(word[i] ^ (seed + (i+1)*PHI))   (mod 2^64)
//
// where word[i] is the i-th little-endian 8-byte word, the last one zero-padded.
// Addition commutes, so any split over threads, CTAs and grid.z gives the bits
// of the sequential sum on the CPU.
//
// Grid: x = position in ids, y = plane, z = slices of a unit. CTA: NT threads.

typedef unsigned long long u64;
typedef unsigned int u32;

#define PHI 0x9E3779B97F4A7C15ull
#define NT 256u // 16*16, which the reduction needs

// mix64 is the finalizer of SplitMix64, a bijection.
static __device__ __forceinline__ u64 mix64(u64 x)
{
	x ^= x >> 30;
	x *= 0xBF58476D1CE4E5B9ull;
	x ^= x >> 27;
	x *= 0x94D049BB133111EBull;
	x ^= x >> 31;
	return x;
}

// word assembles word i of an n-byte unit at address p from its bytes.
static __device__ __forceinline__ u64 word(u64 p, u64 i, u64 n)
{
	u64 w = 0, at = i * 8;
	for (u32 k = 0; k < 8u && at + k < n; k++)
		w |= (u64)LD8(p + at + k) << (8u * k);
	return w;
}

// kvsum adds the sum of unit (y, x) to out[y*gridDim.x + x]; out starts zeroed.
// slice is the number of 16-byte vectors that one z of the grid reads.
extern "C" __global__ void __launch_bounds__(NT)
kvsum(u64 *out, const u64 *planes, const u32 *ids, u64 block_stride, u64 unit_bytes,
	u64 slice, u64 seed)
{
	__shared__ u64 part[NT];
	const u32 tid = threadIdx.x;
	const u64 addr = planes[blockIdx.y] + (u64)ids[blockIdx.x] * block_stride;
	const u64 nvec = (addr & 15u) ? 0 : unit_bytes / 16u;
	u64 acc = 0;

	// Four 16-byte loads in flight per thread hide the latency of the memory.
	u64 v = slice * blockIdx.z;
	u64 hi = v + slice < nvec ? v + slice : nvec;
	v += tid;
	u64 k = seed + (2u * v + 1u) * PHI;
	for (; v + 3u * NT < hi; v += 4u * NT) {
		u64 a[8];
		LD128(addr + v * 16u, a[0], a[1]);
		LD128(addr + v * 16u + 16u * NT, a[2], a[3]);
		LD128(addr + v * 16u + 32u * NT, a[4], a[5]);
		LD128(addr + v * 16u + 48u * NT, a[6], a[7]);
#pragma unroll
		for (u32 j = 0; j < 8u; j += 2u) {
			acc += mix64(a[j] ^ k) + mix64(a[j + 1u] ^ (k + PHI));
			k += 2u * NT * PHI;
		}
	}
#pragma unroll 1
	for (; v < hi; v += NT) {
		u64 a, b;
		LD128(addr + v * 16u, a, b);
		acc += mix64(a ^ k) + mix64(b ^ (k + PHI));
		k += 2u * NT * PHI;
	}

	// The tail of an aligned unit, or every word of an unaligned one.
	const u64 nword = (unit_bytes + 7u) / 8u;
#pragma unroll 1
	for (u64 i = 2u * nvec + blockIdx.z * NT + tid; i < nword; i += gridDim.z * NT)
		acc += mix64(word(addr, i, unit_bytes) ^ (seed + (i + 1u) * PHI));

	// 256 partial sums to 16 to 1, then one atomic a CTA.
	part[tid] = acc;
	__syncthreads();
	if (tid < 16u) {
		u64 s = 0;
		for (u32 j = 0; j < 16u; j++)
			s += part[tid + 16u * j];
		part[tid] = s;
	}
	__syncthreads();
	if (tid == 0) {
		u64 s = 0;
		for (u32 j = 0; j < 16u; j++)
			s += part[j];
		ATOMIC_ADD(&out[blockIdx.y * gridDim.x + blockIdx.x], s);
	}
}

// kvfill writes word i of unit u = y*gridDim.x + x as mix64(mix64(seed+u) + i*PHI).
extern "C" __global__ void __launch_bounds__(NT)
kvfill(const u64 *planes, const u32 *ids, u64 block_stride, u64 unit_bytes, u64 seed)
{
	const u64 addr = planes[blockIdx.y] + (u64)ids[blockIdx.x] * block_stride;
	const u64 key = mix64(seed + blockIdx.y * gridDim.x + blockIdx.x);
	const u64 nword = (unit_bytes + 7u) / 8u;
#pragma unroll 1
	for (u64 i = blockIdx.z * NT + threadIdx.x; i < nword; i += gridDim.z * NT) {
		u64 w = mix64(key + i * PHI);
		if (!(addr & 7u) && i * 8u + 8u <= unit_bytes) {
			ST64(addr + i * 8u, w);
		} else {
#pragma unroll 1
			for (u32 j = 0; j < 8u && i * 8u + j < unit_bytes; j++)
				ST8(addr + i * 8u + j, (u32)(w >> (8u * j)));
		}
	}
}
