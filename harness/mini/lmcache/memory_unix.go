//go:build unix

package lmcache

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// private is zeroed memory that the garbage collector does not see: its pages
// come as they are used, and it does not put off collections.
func private(size int) (bytes []byte, unmap func() error, err error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
