package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const dir = "/dev/shm"

// young is the age below which Sweep leaves a segment alone: its owner may be
// about to lock it.
const young = 10 * time.Second

// Create makes a segment of that many zero bytes under a fresh name, readable
// by this user only. It is refused when the system's shared memory has no room
// for it: writing to a page that is not there would kill the process.
func Create(size int) (*Segment, error) { return CreateNamed(ownPrefix()+rand.Text(), size) }

// ownPrefix begins the names that this process gives.
func ownPrefix() string { return fmt.Sprintf("/%s%d_", Prefix, os.Getpid()) }

// CreateNamed is Create under a name that must be free.
func CreateNamed(name string, size int) (*Segment, error) {
	file, err := checkName(name)
	if err != nil {
		return nil, err
	}
	if size <= 0 {
		return nil, fmt.Errorf("shared memory %s of %d bytes: must be positive", name, size)
	}
	if free, err := Free(); err != nil {
		return nil, err
	} else if int64(size) > free {
		return nil, fmt.Errorf("shared memory %s of %d bytes: %s has %d free", name, size, dir, free)
	}
	path := filepath.Join(dir, file)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating shared memory: %w", err)
	}
	s, err := mapFile(f, name, size, func() error { return f.Truncate(int64(size)) })
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	s.owned = true
	return s, nil
}

// Open maps a segment that somebody else has made. A size of 0 is all of it; a
// segment that is shorter than size is refused.
func Open(name string, size int) (*Segment, error) {
	file, err := checkName(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening shared memory: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if size == 0 {
		size = int(info.Size())
	}
	if info.Size() < int64(size) || size == 0 || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("shared memory %s has %d bytes, want %d", name, info.Size(), size), f.Close())
	}
	return mapFile(f, name, size, func() error { return nil })
}

// mapFile locks, prepares and maps f, which it takes over. A segment that was
// opened, not made, gets a shared lock: it is not ours to keep alive, so a lock
// that is refused is no error.
func mapFile(f *os.File, name string, size int, prepare func() error) (*Segment, error) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err := prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("sizing shared memory %s: %w", name, err), f.Close())
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mapping %d bytes of shared memory %s: %w", size, name, err), f.Close())
	}
	s := &Segment{name: name, bytes: b}
	s.released = func() error { return errors.Join(unix.Munmap(b), f.Close()) }
	return s, nil
}

// Populate faults every page in, so that no later access pays for it.
func (s *Segment) Populate() error { return s.PopulateRange(0, len(s.bytes)) }

// PopulateRange faults the pages of n bytes at offset in.
func (s *Segment) PopulateRange(offset, n int) error {
	page := os.Getpagesize()
	start := offset / page * page
	part := s.bytes[start : offset+n]
	err := unix.Madvise(part, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // kernels before 5.14: read a byte of each
		var sum byte
		for i := 0; i < len(part); i += page {
			sum += part[i]
		}
		_ = sum
		return nil
	}
	if err != nil {
		return fmt.Errorf("faulting in shared memory %s: %w", s.name, err)
	}
	return nil
}

// Unlink removes the name of a segment that Create made; the memory stays for
// those who have mapped it. Afterwards nothing is left behind even by a process
// that is killed.
func (s *Segment) Unlink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unlink()
}

func (s *Segment) unlink() error {
	if !s.owned {
		return nil
	}
	s.owned = false
	if err := os.Remove(filepath.Join(dir, strings.TrimPrefix(s.name, "/"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing shared memory: %w", err)
	}
	return nil
}

// Close unmaps the segment and removes its name if Create made it. It may be
// called again.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.unlink()
	if s.released != nil {
		err = errors.Join(err, s.released())
		s.released, s.bytes = nil, nil
	}
	return err
}

// Free is the number of bytes that new segments can take.
func Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("asking for free shared memory: %w", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// Sweep removes the segments that processes left behind which are gone, and
// returns their names. Those of other users it cannot open and leaves alone.
func Sweep() ([]string, error) { return sweep("/"+Prefix, young) }

// sweep does that to names that begin with prefix and are old enough.
func sweep(prefix string, young time.Duration) ([]string, error) {
	names, err := List()
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		path := filepath.Join(dir, name[1:])
		f, err := os.Open(path)
		if err != nil {
			continue // gone, or somebody else's
		}
		// The age first: an owner that finds its segment locked at its birth would
		// never get a lock.
		info, statErr := f.Stat()
		old := statErr == nil && time.Since(info.ModTime()) >= young
		if old && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if err = os.Remove(path); err == nil {
				removed = append(removed, name)
			}
		}
		if closeErr := f.Close(); err != nil || closeErr != nil {
			return removed, fmt.Errorf("sweeping shared memory: %w", errors.Join(err, closeErr))
		}
	}
	return removed, nil
}

// Own is the names of the segments that Create made in this process and that
// still have one.
func Own() ([]string, error) {
	names, err := List()
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, ownPrefix()) }), err
}

// List is the names of all segments that Create made, of this process and of
// others, in order.
func List() ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing shared memory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Prefix) {
			names = append(names, "/"+e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
