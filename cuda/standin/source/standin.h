// A stand-in for NVIDIA's driver library, for tests: libcuda.so.1 on host memory.
//
// It is strict where the driver is (current context, handles, ranges, options)
// and lazy where the driver may be: what goes into a stream runs only when
// somebody waits for it, so that a forgotten wait shows as a wrong result every
// time. "Device" memory is a mapped memfd, so that IPC handles work between
// processes. A kernel launch is handed to the launcher that is registered,
// which executes the PTX; no result is faked.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int result; // CUresult
typedef uint64_t deviceptr;
typedef struct {
	char bytes[64];
} ipc_handle;

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
	ILLEGAL_ADDRESS = 700,
	LAUNCH_TIMEOUT = 702,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713,
};

// An op is one piece of work in a stream. A copy within one address space needs
// no direction.
enum op_kind { OP_COPY, OP_SET, OP_LAUNCH, OP_RECORD, OP_WAIT, OP_GATE };
struct op {
	enum op_kind kind;
	struct op *next;
	deviceptr to, from;
	size_t size;
	int value;
	struct event *event;
	uint64_t generation;
	struct function *function;
	uint32_t dims[6];
	char params[256];
	char *staged; // the source of a copy that the caller may overwrite
};

struct stream {
	uint32_t magic;
	int draining;
	struct context *context;
	struct op *head, **tail;
};

struct context {
	int device, retained;
	result fault; // sticky: every later call returns it
	struct stream null_stream;
};

// The part of an event that processes share.
struct progress {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	uint64_t recorded, completed; // generations
	struct timespec at;           // of the last completion
};

struct event {
	uint32_t magic;
	unsigned flags;
	int fd; // of the shared mapping; -1 if there is none
	struct progress *progress;
	struct stream *stream; // of the last record in this process
};

struct module {
	uint32_t magic;
	char *ptx;
};
struct function {
	struct module *module;
	char name[64];
};

typedef result (*launcher_fn)(const char *ptx, const char *name, const uint32_t dims[6],
	const void *params, size_t size);

// One lock for everything; a launch calls back while it is held.
int lock(void);
void unlock(int *held);
result enter(const char *call, int needs_context);
#define ENTER(needs_context)                                 \
	int held_ __attribute__((cleanup(unlock))) = lock();     \
	do {                                                     \
		result entered_ = enter(__func__, needs_context);    \
		if (entered_)                                        \
			return entered_;                                 \
	} while (0)

enum kind { DEVICE_MEMORY, OPENED_MEMORY, PINNED, REGISTERED, STREAM, EVENT, MODULE, CONTEXT, KINDS };
extern int live[KINDS];
extern __thread struct context *current;
extern launcher_fn launcher;

void forget_memory(void);
void forget_streams(void);
int in_device(deviceptr p, size_t n);
int in_pinned(deviceptr p, size_t n);
int on_device_or_host(deviceptr p, size_t n);

void open_stream(struct stream *s, struct context *c);
result check_stream(struct stream *s);
result submit(struct stream *s, const struct op *op);
result drain(struct stream *s);
result drain_all(void);
result check_event(struct event *e);
struct event *new_event(unsigned flags, int fd, struct progress *p);
struct progress *map_progress(int fd);
