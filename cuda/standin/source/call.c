// Entry checks, error texts, start-up, devices and contexts.
#include "standin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex;
static int initialized;
static struct context contexts[2];
__thread struct context *current;
launcher_fn launcher;
int live[KINDS];

__attribute__((constructor)) static void start(void)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&mutex, &a);
	contexts[1].device = 1;
	open_stream(&contexts[0].null_stream, &contexts[0]);
	open_stream(&contexts[1].null_stream, &contexts[1]);
}

int lock(void)
{
	pthread_mutex_lock(&mutex);
	return 1;
}
void unlock(int *held)
{
	(void)held;
	pthread_mutex_unlock(&mutex);
}

// What the tests see and steer: calls by name, and failures on demand.
static struct {
	char name[48];
	int calls, skip, code;
} calls[128];

static int entry(const char *name)
{
	int i = 0;
	for (; i < 127 && calls[i].name[0]; i++)
		if (!strcmp(calls[i].name, name))
			return i;
	snprintf(calls[i].name, sizeof calls[i].name, "%s", name);
	return i;
}
int standin_calls(const char *name) { return calls[entry(name)].calls; }
int standin_live(int kind) { return kind < KINDS ? live[kind] : -1; }
void standin_set_launcher(launcher_fn l) { launcher = l; }

// standin_fail makes the call return code, once, after it has worked skip times.
void standin_fail(const char *name, int skip, int code)
{
	int i = entry(name);
	calls[i].skip = skip;
	calls[i].code = code;
}
// standin_revive forgets the faults and injected failures, as a new process would.
void standin_revive(void)
{
	contexts[0].fault = contexts[1].fault = 0;
	for (int i = 0; i < 128; i++)
		calls[i].code = 0;
}

// standin_forget drops everything that is held, as the end of a process does.
void standin_forget(void)
{
	standin_revive();
	forget_streams();
	forget_memory();
	for (int i = 0; i < KINDS; i++)
		live[i] = 0;
	contexts[0].retained = contexts[1].retained = 0;
}

result enter(const char *name, int needs_context)
{
	int i = entry(name);
	calls[i].calls++;
	if (calls[i].code && calls[i].skip-- == 0) {
		int code = calls[i].code;
		calls[i].code = 0;
		return code;
	}
	if (!initialized && strcmp(name, "cuInit"))
		return NOT_INITIALIZED;
	if (!needs_context)
		return OK;
	return current ? current->fault : INVALID_CONTEXT;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{OK, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
};
static int find_error(int code)
{
	for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code)
			return i;
	return -1;
}
result cuGetErrorName(result code, const char **s)
{
	int i = find_error(code);
	*s = i < 0 ? NULL : errors[i].name;
	return i < 0 ? INVALID_VALUE : OK;
}
result cuGetErrorString(result code, const char **s)
{
	int i = find_error(code);
	*s = i < 0 ? NULL : errors[i].text;
	return i < 0 ? INVALID_VALUE : OK;
}

result cuInit(unsigned flags)
{
	ENTER(0);
	if (flags)
		return INVALID_VALUE;
	initialized = 1;
	return OK;
}
result cuDriverGetVersion(int *v)
{
	*v = 13050;
	return OK;
}
result cuDeviceGetCount(int *n)
{
	ENTER(0);
	*n = 2;
	return OK;
}
result cuDeviceGet(int *d, int ordinal)
{
	ENTER(0);
	if (ordinal < 0 || ordinal > 1)
		return INVALID_DEVICE;
	*d = ordinal;
	return OK;
}
result cuDeviceGetName(char *b, int n, int d)
{
	ENTER(0);
	snprintf(b, n, "stand-in %d", d);
	return OK;
}
result cuDeviceGetUuid_v2(unsigned char *u, int d)
{
	ENTER(0);
	for (int i = 0; i < 16; i++)
		u[i] = i * 17 + d;
	return OK;
}
result cuDeviceGetPCIBusId(char *b, int n, int d)
{
	ENTER(0);
	snprintf(b, n, "0000:%02X:00.0", 0x1A + d);
	return OK;
}
result cuDeviceTotalMem_v2(size_t *n, int d)
{
	ENTER(0);
	*n = d > 1 ? 0 : (size_t)1 << 30;
	return OK;
}
result cuDeviceGetAttribute(int *v, int attribute, int d)
{
	ENTER(0);
	static const int known[][2] = {{16, 4}, {13, 1755000}, {36, 3201000}, {37, 5120}, {38, 1 << 20},
		{40, 2}, {75, 9}, {76, 0}, {125, 1}, {134, 0}};
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i][0] == attribute) {
			*v = known[i][1];
			return d > 1 ? INVALID_DEVICE : OK;
		}
	return INVALID_VALUE;
}

result cuDevicePrimaryCtxRetain(struct context **c, int d)
{
	ENTER(0);
	if (d < 0 || d > 1)
		return INVALID_DEVICE;
	contexts[d].retained++;
	live[CONTEXT]++;
	*c = &contexts[d];
	return OK;
}
result cuDevicePrimaryCtxRelease_v2(int d)
{
	ENTER(0);
	if (d < 0 || d > 1 || !contexts[d].retained)
		return INVALID_CONTEXT;
	contexts[d].retained--;
	live[CONTEXT]--;
	return OK;
}
result cuCtxSetCurrent(struct context *c)
{
	ENTER(0);
	if (c && (c < contexts || c > contexts + 1 || !c->retained))
		return INVALID_CONTEXT;
	current = c;
	return OK;
}
result cuCtxSynchronize(void)
{
	ENTER(1);
	return drain_all();
}
