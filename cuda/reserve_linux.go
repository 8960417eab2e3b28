package cuda

import (
	"os"
	"syscall"
)

// reserve gives an empty file n bytes of its file system. They are reserved, not
// only promised: a full /dev/shm is an error here and not a SIGBUS at the first
// touch.
func reserve(f *os.File, n int) error {
	return syscall.Fallocate(int(f.Fd()), 0, 0, int64(n))
}
