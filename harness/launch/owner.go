package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// An owner is a lock that the kernel drops when this process ends, however it
// ends. Whatever a run starts carries the path of its lock, so that a later run
// can tell what has no living owner: a process id alone could be somebody
// else's by then.
type owner struct{ file *os.File }

// own takes a fresh lock below dir.
func own(dir string) (*owner, error) {
	f, err := os.CreateTemp(dir, "run-*.lock")
	if err != nil {
		return nil, fmt.Errorf("making the lock of this run: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close(), os.Remove(f.Name()))
	}
	return &owner{file: f}, nil
}

// takeTurn waits until no other run begins in dir. Closing the file ends the turn.
func takeTurn(dir string) (*os.File, error) {
	path := filepath.Join(dir, "begin.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("waiting for other runs to begin: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (o *owner) path() string { return o.file.Name() }

// release drops the lock and removes its file. What still carries its path has
// no owner from now on.
func (o *owner) release() error { return errors.Join(os.Remove(o.path()), o.file.Close()) }

// alive reports whether the run that made the lock still goes on. A file that
// is gone belongs to nobody; one that cannot be opened may be another user's.
func alive(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// removeDeadLocks removes the locks in dir that nobody holds.
func removeDeadLocks(dir string) error {
	locks, err := filepath.Glob(filepath.Join(dir, "run-*.lock"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range locks {
		if !alive(path) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
