//go:build unix && !linux

package cuda

import "os"

// reserve gives an empty file n bytes; CUDA itself is on Linux alone.
func reserve(f *os.File, n int) error { return f.Truncate(int64(n)) }
