enum { MAX_ALLOCATIONS = 4096 };
struct allocation {
	char *p;
	size_t n;
	int fd, opened;
};
struct allocation *find_allocation(deviceptr p, size_t n);
result map_allocation(deviceptr *out, int fd, size_t n, int opened);
result drop_allocation(deviceptr p, int opened);
