//go:build linux || darwin

package host

import (
	"fmt"
	"syscall"
)

// diskFree is what somebody who is not root may still write below dir.
func diskFree(dir string) (int64, error) {
	path, err := existing(dir)
	if err != nil {
		return 0, fmt.Errorf("reading what is free on the disk of %s: %w", dir, err)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("reading what is free on the disk of %s: %w", path, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
