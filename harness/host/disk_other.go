//go:build !linux && !darwin

package host

import (
	"fmt"
	"runtime"
)

func diskFree(dir string) (int64, error) {
	return 0, fmt.Errorf("reading what is free on the disk of %s: not known how on %s", dir, runtime.GOOS)
}
