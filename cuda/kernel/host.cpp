// kv_host_launch runs a kernel of kvsum.cu on the CPU. grid holds x, y, z; every
// parameter is 8 bytes wide, as in the driver's packed parameter block.
#include "shim_host.h"
#include "kvsum.cu"

static const uint64_t *kv_params;

static void run_kvsum(void)
{
	const uint64_t *p = kv_params;
	kvsum((u64 *)p[0], (const u64 *)p[1], (const u32 *)p[2], p[3], p[4], p[5], p[6]);
}

static void run_kvfill(void)
{
	const uint64_t *p = kv_params;
	kvfill((const u64 *)p[0], (const u32 *)p[1], p[2], p[3], p[4]);
}

extern "C" int kv_host_launch(const char *name, const uint32_t *grid, const uint64_t *params, size_t n)
{
	kv_params = params;
	if (!strcmp(name, "kvsum") && n == 56)
		kv_run(grid, run_kvsum);
	else if (!strcmp(name, "kvfill") && n == 40)
		kv_run(grid, run_kvfill);
	else
		return 1;
	return 0;
}
