// Modules and launches. The launcher executes; nothing is faked here.
#include "standin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_MAGIC = 0x40D0113 };

result cuModuleLoadDataEx(struct module **m, const char *image, unsigned n, const int *option, void **value)
{
	ENTER(1);
	char *info = NULL, *error = NULL;
	size_t info_size = 0, error_size = 0;
	for (unsigned i = 0; i < n; i++)
		switch (option[i]) {
		case 3: info = value[i]; break;
		case 4: info_size = (uint32_t)(uintptr_t)value[i]; break;
		case 5: error = value[i]; break;
		case 6: error_size = (uint32_t)(uintptr_t)value[i]; break;
		case 12: break; // verbose
		default: return INVALID_VALUE;
		}
	if (!strstr(image, ".version") || !strstr(image, ".visible .entry")) {
		if (error && error_size)
			snprintf(error, error_size, "ptxas fatal   : Ptx assembly aborted due to errors");
		return INVALID_PTX;
	}
	if (info && info_size)
		snprintf(info, info_size, "ptxas info    : 0 bytes gmem (stand-in)");
	*m = malloc(sizeof **m);
	**m = (struct module){.magic = MODULE_MAGIC, .ptx = strdup(image)};
	live[MODULE]++;
	return OK;
}
result cuModuleUnload(struct module *m)
{
	ENTER(1);
	if (!m || m->magic != MODULE_MAGIC)
		return INVALID_HANDLE;
	result r = drain_all();
	m->magic = 0; // the text stays: functions and the launcher's cache name it
	live[MODULE]--;
	return r;
}
result cuModuleGetFunction(struct function **f, struct module *m, const char *name)
{
	ENTER(1);
	if (!m || m->magic != MODULE_MAGIC)
		return INVALID_HANDLE;
	char pattern[96];
	snprintf(pattern, sizeof pattern, ".visible .entry %s(", name);
	if (!strstr(m->ptx, pattern))
		return NOT_FOUND;
	*f = malloc(sizeof **f);
	(*f)->module = m;
	snprintf((*f)->name, sizeof (*f)->name, "%s", name);
	return OK;
}

// Only the packed form of parameters is taken: extra = {1, buffer, 2, &size, 0}.
result cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz, unsigned shared, struct stream *s, void **params, void **extra)
{
	ENTER(1);
	if (!f || f->module->magic != MODULE_MAGIC || check_stream(s))
		return INVALID_HANDLE;
	if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffff || gy > 65535 || gz > 65535 ||
		bx * by * bz > 1024 || shared > 49152)
		return INVALID_VALUE;
	struct op op = {.kind = OP_LAUNCH, .function = f, .dims = {gx, gy, gz, bx, by, bz}};
	void *buffer = NULL;
	if (params || !extra)
		return INVALID_VALUE;
	for (int i = 0; extra[i]; i += 2)
		if ((uintptr_t)extra[i] == 1)
			buffer = extra[i + 1];
		else if ((uintptr_t)extra[i] == 2)
			op.size = *(size_t *)extra[i + 1];
		else
			return INVALID_VALUE;
	if (!buffer || op.size > sizeof op.params)
		return INVALID_VALUE;
	memcpy(op.params, buffer, op.size); // as the driver does: the caller's buffer is free at return
	return submit(s, &op);
}
