// Device memory on memfds, page-locked host memory, copies.
#include "standin.h"
#include "memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct allocation allocations[MAX_ALLOCATIONS];
static struct {
	char *p;
	size_t n;
	enum kind kind;
} pinned[MAX_ALLOCATIONS];
static const size_t capacity = (size_t)1 << 30;

struct allocation *find_allocation(deviceptr p, size_t n)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		struct allocation *a = &allocations[i];
		deviceptr at = (deviceptr)a->p;
		if (a->p && p >= at && n <= a->n && p - at <= a->n - n)
			return a;
	}
	return NULL;
}
int in_device(deviceptr p, size_t n) { return find_allocation(p, n) != NULL; }

int in_pinned(deviceptr p, size_t n)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		deviceptr at = (deviceptr)pinned[i].p;
		if (at && p >= at && n <= pinned[i].n && p - at <= pinned[i].n - n)
			return 1;
	}
	return 0;
}
int on_device_or_host(deviceptr p, size_t n) { return in_device(p, n) || in_pinned(p, n); }

// standin_regions lists (address, size) of all device memory for the launcher.
int standin_regions(uint64_t *out, int max)
{
	int n = 0;
	for (int i = 0; i < MAX_ALLOCATIONS && n < max; i++)
		if (allocations[i].p) {
			out[2 * n] = (deviceptr)allocations[i].p;
			out[2 * n++ + 1] = allocations[i].n;
		}
	return n;
}

static size_t used(void)
{
	size_t n = 0;
	for (int i = 0; i < MAX_ALLOCATIONS; i++)
		if (allocations[i].p && !allocations[i].opened)
			n += allocations[i].n;
	return n;
}

result map_allocation(deviceptr *out, int fd, size_t n, int opened)
{
	struct allocation *a = allocations;
	while (a < allocations + MAX_ALLOCATIONS && a->p)
		a++;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || a == allocations + MAX_ALLOCATIONS)
		return OUT_OF_MEMORY;
	*a = (struct allocation){.p = p, .n = n, .fd = fd, .opened = opened};
	live[opened ? OPENED_MEMORY : DEVICE_MEMORY]++;
	*out = (deviceptr)p;
	return OK;
}
result drop_allocation(deviceptr p, int opened)
{
	struct allocation *a = find_allocation(p, 1);
	if (!a || (deviceptr)a->p != p || a->opened != opened)
		return INVALID_VALUE;
	result r = drain_all(); // freeing waits for the device
	munmap(a->p, a->n);
	close(a->fd);
	a->p = NULL;
	live[opened ? OPENED_MEMORY : DEVICE_MEMORY]--;
	return r;
}

void forget_memory(void)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++) {
		if (allocations[i].p) {
			munmap(allocations[i].p, allocations[i].n);
			close(allocations[i].fd);
		}
		if (pinned[i].p && pinned[i].kind == PINNED)
			free(pinned[i].p);
		allocations[i].p = pinned[i].p = NULL;
	}
}

result cuMemAlloc_v2(deviceptr *p, size_t n)
{
	ENTER(1);
	if (!n)
		return INVALID_VALUE;
	if (n > capacity - used())
		return OUT_OF_MEMORY;
	int fd = memfd_create("standin", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, n))
		return OUT_OF_MEMORY;
	result r = map_allocation(p, fd, n, 0);
	if (!r)
		memset((void *)*p, 0xA5, n); // fresh memory is not zero
	return r;
}
result cuMemFree_v2(deviceptr p)
{
	ENTER(1);
	return p ? drop_allocation(p, 0) : OK;
}
result cuMemGetInfo_v2(size_t *available, size_t *total)
{
	ENTER(1);
	*available = capacity - used();
	*total = capacity;
	return OK;
}
result cuMemGetAddressRange_v2(deviceptr *base, size_t *n, deviceptr p)
{
	ENTER(1);
	struct allocation *a = find_allocation(p, 1);
	if (!a)
		return NOT_FOUND;
	*base = (deviceptr)a->p;
	*n = a->n;
	return OK;
}

static result pin(void *p, size_t n, enum kind kind)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++)
		if (!pinned[i].p) {
			pinned[i].p = p;
			pinned[i].n = n;
			pinned[i].kind = kind;
			live[kind]++;
			return OK;
		}
	return OUT_OF_MEMORY;
}
static result unpin(void *p, enum kind kind, result missing)
{
	for (int i = 0; i < MAX_ALLOCATIONS; i++)
		if (p && pinned[i].p == p && pinned[i].kind == kind) {
			result r = drain_all();
			pinned[i].p = NULL;
			live[kind]--;
			return r;
		}
	return missing;
}
result cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	ENTER(1);
	if (!n || flags & ~3u || posix_memalign(p, 4096, n))
		return INVALID_VALUE;
	memset(*p, 0x5A, n);
	return pin(*p, n, PINNED);
}
result cuMemFreeHost(void *p)
{
	ENTER(1);
	result r = unpin(p, PINNED, INVALID_VALUE);
	if (!r)
		free(p);
	return r;
}
result cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	ENTER(1);
	if (!p || !n || flags & ~3u)
		return INVALID_VALUE;
	return in_pinned((deviceptr)p, 1) ? ALREADY_REGISTERED : pin(p, n, REGISTERED);
}
result cuMemHostUnregister(void *p)
{
	ENTER(1);
	return unpin(p, REGISTERED, NOT_REGISTERED);
}
result cuMemHostGetDevicePointer_v2(deviceptr *d, void *p, unsigned flags)
{
	ENTER(1);
	if (flags || !in_pinned((deviceptr)p, 1))
		return INVALID_VALUE;
	*d = (deviceptr)p;
	return OK;
}

static result copy(deviceptr to, deviceptr from, size_t n, struct stream *s)
{
	return n ? submit(s, &(struct op){.kind = OP_COPY, .to = to, .from = from, .size = n}) : OK;
}

// The synchronous copies go through the null stream, which does not wait for the
// non-blocking streams that the product uses. Towards the device they return when
// the source may be changed, which is before the bytes have arrived.
result cuMemcpyHtoD_v2(deviceptr d, const void *h, size_t n)
{
	ENTER(1);
	if (!n)
		return OK;
	if (!in_device(d, n))
		return INVALID_VALUE;
	char *staged = malloc(n);
	memcpy(staged, h, n);
	return submit(NULL, &(struct op){.kind = OP_COPY, .to = d, .from = (deviceptr)staged, .size = n, .staged = staged});
}
result cuMemcpyDtoH_v2(void *h, deviceptr d, size_t n)
{
	ENTER(1);
	if (n && !in_device(d, n))
		return INVALID_VALUE;
	result r = copy((deviceptr)h, d, n, NULL);
	return r ? r : drain(NULL);
}

// A copy of pageable memory cannot be left to the device: it is done when the
// call returns, after all that is in the stream.
static result host_copy(deviceptr to, deviceptr from, deviceptr host, size_t n, struct stream *s)
{
	if (n && !in_device(host == to ? from : to, n))
		return INVALID_VALUE;
	if (in_pinned(host, n))
		return copy(to, from, n, s);
	result r = copy(to, from, n, s);
	return r ? r : drain(s);
}
result cuMemcpyHtoDAsync_v2(deviceptr d, const void *h, size_t n, struct stream *s)
{
	ENTER(1);
	result r = check_stream(s);
	return r ? r : host_copy(d, (deviceptr)h, (deviceptr)h, n, s);
}
result cuMemcpyDtoHAsync_v2(void *h, deviceptr d, size_t n, struct stream *s)
{
	ENTER(1);
	result r = check_stream(s);
	return r ? r : host_copy((deviceptr)h, d, (deviceptr)h, n, s);
}
result cuMemcpyDtoDAsync_v2(deviceptr to, deviceptr from, size_t n, struct stream *s)
{
	ENTER(1);
	if (check_stream(s))
		return INVALID_HANDLE;
	return in_device(to, n) && in_device(from, n) ? copy(to, from, n, s) : INVALID_VALUE;
}
result cuMemcpyDtoD_v2(deviceptr to, deviceptr from, size_t n)
{
	ENTER(1);
	return in_device(to, n) && in_device(from, n) ? copy(to, from, n, NULL) : INVALID_VALUE;
}
result cuMemsetD8Async(deviceptr d, unsigned char value, size_t n, struct stream *s)
{
	ENTER(1);
	if (check_stream(s))
		return INVALID_HANDLE;
	if (!in_device(d, n))
		return INVALID_VALUE;
	return submit(s, &(struct op){.kind = OP_SET, .to = d, .size = n, .value = value});
}
