// Streams that run when somebody waits for them, and events.
#include "standin.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STREAM_MAGIC = 0x57EA4000, EVENT_MAGIC = 0xE7E47000, MAX_STREAMS = 256 };
static struct stream *streams[MAX_STREAMS];

void open_stream(struct stream *s, struct context *c)
{
	s->magic = STREAM_MAGIC;
	s->context = c;
	s->tail = &s->head;
}
result check_stream(struct stream *s)
{
	return !s || s->magic == STREAM_MAGIC ? OK : INVALID_HANDLE;
}
result check_event(struct event *e)
{
	return e && e->magic == EVENT_MAGIC ? OK : INVALID_HANDLE;
}

static void complete(struct progress *p, uint64_t generation)
{
	pthread_mutex_lock(&p->mutex);
	p->completed = generation;
	clock_gettime(CLOCK_MONOTONIC, &p->at);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->mutex);
}

// await runs the stream of this process that will complete the generation, or
// waits for the other process that must.
static result await(struct event *e, uint64_t generation)
{
	struct progress *p = e->progress;
	if (p->completed < generation && e->stream) {
		result r = drain(e->stream);
		if (r)
			return r;
	}
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	int late = 0;
	pthread_mutex_lock(&p->mutex);
	while (p->completed < generation && !late)
		late = pthread_cond_timedwait(&p->changed, &p->mutex, &until);
	pthread_mutex_unlock(&p->mutex);
	return late ? LAUNCH_TIMEOUT : OK;
}

static result execute(struct op *op)
{
	switch (op->kind) {
	case OP_COPY:
		memmove((void *)op->to, (void *)op->from, op->size);
		return OK;
	case OP_SET:
		memset((void *)op->to, op->value, op->size);
		return OK;
	case OP_LAUNCH:
		return launcher(op->function->module->ptx, op->function->name, op->dims, op->params, op->size);
	case OP_RECORD:
		complete(op->event->progress, op->generation);
		return OK;
	case OP_WAIT:
		return await(op->event, op->generation);
	case OP_GATE: // closed while somebody waits: the device would hang
		return *(volatile uint32_t *)op->to >= (uint32_t)op->value ? OK : LAUNCH_TIMEOUT;
	}
	return INVALID_VALUE;
}

// submit appends to a stream; the null stream is one of its own.
result submit(struct stream *s, const struct op *op)
{
	struct op *mine = malloc(sizeof *mine);
	*mine = *op;
	mine->next = NULL;
	s = s ? s : &current->null_stream;
	*s->tail = mine;
	s->tail = &mine->next;
	return OK;
}

result drain(struct stream *s)
{
	s = s ? s : &current->null_stream;
	if (s->draining)
		return LAUNCH_TIMEOUT; // two streams wait for each other
	s->draining = 1;
	result r = OK;
	while (s->head) {
		struct op *op = s->head;
		if (!r)
			r = execute(op);
		else if (op->kind == OP_RECORD)
			complete(op->event->progress, op->generation); // nobody shall wait for a dead device
		if (r)
			s->context->fault = r;
		s->head = op->next;
		free(op->staged);
		free(op);
	}
	s->tail = &s->head;
	s->draining = 0;
	return r;
}

// forget_streams gives up streams without running what is in them.
void forget_streams(void)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		streams[i] = NULL;
}

result drain_all(void)
{
	result first = current->null_stream.draining ? OK : drain(NULL);
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i] && !streams[i]->draining) {
			result r = drain(streams[i]);
			if (!first)
				first = r;
		}
	return first;
}

result cuStreamCreate(struct stream **s, unsigned flags)
{
	ENTER(1);
	int i = 0;
	while (i < MAX_STREAMS && streams[i])
		i++;
	if (flags & ~1u || i == MAX_STREAMS)
		return INVALID_VALUE;
	*s = streams[i] = calloc(1, sizeof **s);
	open_stream(*s, current);
	live[STREAM]++;
	return OK;
}
result cuStreamSynchronize(struct stream *s)
{
	ENTER(1);
	result r = check_stream(s);
	return r ? r : drain(s);
}
result cuStreamDestroy_v2(struct stream *s)
{
	ENTER(1);
	if (!s || check_stream(s))
		return INVALID_HANDLE;
	result r = drain(s);
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i] == s)
			streams[i] = NULL;
	s->magic = 0;
	live[STREAM]--;
	return r; // kept: an event may still name it, and it is empty
}
result cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags)
{
	ENTER(1);
	if (check_event(e) || check_stream(s))
		return INVALID_HANDLE;
	if (flags)
		return INVALID_VALUE;
	return submit(s, &(struct op){.kind = OP_WAIT, .event = e, .generation = e->progress->recorded});
}
result cuStreamWaitValue32_v2(struct stream *s, deviceptr at, uint32_t value, unsigned flags)
{
	ENTER(1);
	if (!s || check_stream(s))
		return INVALID_HANDLE;
	if (flags || at % 4 || !on_device_or_host(at, 4))
		return INVALID_VALUE;
	return submit(s, &(struct op){.kind = OP_GATE, .to = at, .value = value});
}

struct event *new_event(unsigned flags, int fd, struct progress *p)
{
	struct event *e = calloc(1, sizeof *e);
	*e = (struct event){.magic = EVENT_MAGIC, .flags = flags, .fd = fd, .progress = p};
	live[EVENT]++;
	return e;
}
struct progress *map_progress(int fd)
{
	void *p = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}
result cuEventCreate(struct event **e, unsigned flags)
{
	ENTER(1);
	if (flags & ~7u || ((flags & 4) && !(flags & 2)))
		return INVALID_VALUE; // interprocess events cannot have timing
	int fd = memfd_create("standin-event", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(struct progress)))
		return OUT_OF_MEMORY;
	struct progress *p = map_progress(fd);
	pthread_mutexattr_t m;
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&p->mutex, &m);
	pthread_condattr_t c;
	pthread_condattr_init(&c);
	pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&p->changed, &c);
	*e = new_event(flags, fd, p);
	return OK;
}
result cuEventRecord(struct event *e, struct stream *s)
{
	ENTER(1);
	if (check_event(e) || check_stream(s))
		return INVALID_HANDLE;
	e->stream = s ? s : &current->null_stream;
	uint64_t generation = ++e->progress->recorded;
	return submit(s, &(struct op){.kind = OP_RECORD, .event = e, .generation = generation});
}
result cuEventSynchronize(struct event *e)
{
	ENTER(1);
	return check_event(e) ? INVALID_HANDLE : await(e, e->progress->recorded);
}
result cuEventElapsedTime(float *ms, struct event *a, struct event *b)
{
	ENTER(1);
	if (check_event(a) || check_event(b) || (a->flags | b->flags) & 2)
		return INVALID_HANDLE;
	struct progress *p = a->progress, *q = b->progress;
	if (!p->recorded || !q->recorded)
		return INVALID_HANDLE;
	if (p->completed < p->recorded || q->completed < q->recorded)
		return 600; // not ready
	*ms = (q->at.tv_sec - p->at.tv_sec) * 1e3 + (q->at.tv_nsec - p->at.tv_nsec) / 1e6;
	return OK;
}
result cuEventDestroy_v2(struct event *e)
{
	ENTER(1);
	if (check_event(e))
		return INVALID_HANDLE;
	result r = drain_all(); // ops name the event
	e->magic = 0;
	munmap(e->progress, sizeof *e->progress);
	close(e->fd);
	free(e);
	live[EVENT]--;
	return r;
}
