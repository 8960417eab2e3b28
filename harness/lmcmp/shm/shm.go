// Package shm is POSIX shared memory: named segments that two processes map.
//
//	s, err := shm.Create(64 << 20)
//	defer s.Close() // unmaps it, and removes the name
//	copy(s.Bytes(), ...)
//
// Names end with their owner: each segment carries a lock that the kernel drops
// when the process is gone, however it went, and [Sweep] removes those that
// nobody holds. It is written by hand, on the files of /dev/shm, since Go's
// library has no shared memory; other systems than Linux get an error.
package shm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Prefix begins the name of every segment that Create makes.
const Prefix = "kvproof_"

// ErrUnsupported says that there is no shared memory on this system.
var ErrUnsupported = errors.New("shared memory is only supported on Linux")

// A Segment is a mapped piece of shared memory.
type Segment struct {
	name  string // with a leading slash
	bytes []byte

	mu       sync.Mutex
	owned    bool // the name is ours to remove
	released func() error
}

// Name is the name with the leading slash that POSIX wants.
func (s *Segment) Name() string { return s.name }

// Bytes is the memory. It must not be used after Close.
func (s *Segment) Bytes() []byte { return s.bytes }

// checkName refuses names that are no plain file below /dev/shm.
func checkName(name string) (file string, err error) {
	file = strings.TrimPrefix(name, "/")
	if file == "" || strings.ContainsAny(file, "/\x00") || file == "." || file == ".." || len(file) > 255 {
		return "", fmt.Errorf("shared memory %q: not a name", name)
	}
	return file, nil
}
