// Handles that another process opens: the number of a memfd and whose it is.
#include "standin.h"
#include "memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HANDLE_MAGIC = 0x17C4A11E };
struct handle {
	uint32_t magic;
	int pid, fd, event;
	size_t size;
	char pad[32];
	uint64_t end; // the last bytes count: a handle cut short must fail
};

static void seal(ipc_handle *out, struct handle h)
{
	h.magic = HANDLE_MAGIC;
	h.pid = getpid();
	h.end = ~(uint64_t)HANDLE_MAGIC;
	memset(h.pad, 0x5A, sizeof h.pad);
	memcpy(out, &h, sizeof *out);
}
static result unseal(struct handle *h, const ipc_handle *in, int event, int *fd)
{
	memcpy(h, in, sizeof *in);
	if (h->magic != HANDLE_MAGIC || h->end != ~(uint64_t)HANDLE_MAGIC || h->event != event)
		return INVALID_HANDLE;
	if (h->pid == getpid())
		return INVALID_CONTEXT; // not in the exporting process
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
	*fd = open(path, O_RDWR | O_CLOEXEC);
	return *fd < 0 ? INVALID_HANDLE : OK;
}

result cuIpcGetMemHandle(ipc_handle *out, deviceptr p)
{
	ENTER(1);
	struct allocation *a = find_allocation(p, 1);
	if (!a || a->opened)
		return INVALID_VALUE;
	seal(out, (struct handle){.fd = a->fd, .size = a->n});
	return OK;
}
result cuIpcOpenMemHandle_v2(deviceptr *p, ipc_handle in, unsigned flags)
{
	ENTER(1);
	struct handle h;
	int fd;
	if (flags != 1)
		return INVALID_VALUE;
	result r = unseal(&h, &in, 0, &fd);
	return r ? r : map_allocation(p, fd, h.size, 1);
}
result cuIpcCloseMemHandle(deviceptr p)
{
	ENTER(1);
	return drop_allocation(p, 1);
}
result cuIpcGetEventHandle(ipc_handle *out, struct event *e)
{
	ENTER(1);
	if (check_event(e))
		return INVALID_HANDLE;
	if (!(e->flags & 4))
		return INVALID_VALUE;
	seal(out, (struct handle){.fd = e->fd, .event = 1});
	return OK;
}
result cuIpcOpenEventHandle(struct event **e, ipc_handle in)
{
	ENTER(1);
	struct handle h;
	int fd;
	result r = unseal(&h, &in, 1, &fd);
	if (r)
		return r;
	struct progress *p = map_progress(fd);
	if (!p)
		return OUT_OF_MEMORY;
	*e = new_event(6, fd, p);
	return OK;
}
