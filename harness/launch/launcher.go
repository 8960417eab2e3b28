package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kvproof/kvproof/harness/host"
)

// A Launcher starts services and ends them. Its methods may be called from
// several goroutines.
type Launcher struct {
	dir   string
	owner *owner
	swept []Record

	mu              sync.Mutex
	services        []*Service // in the order of their starts
	containers      []*ContainerService
	containersSwept bool
	closed          bool
}

// DefaultDir is where this user's runs keep their records: running below
// KVPROOF_CACHE, or below kvproof in the user's cache directory.
func DefaultDir() (string, error) {
	cache, err := host.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "running"), nil
}

// New makes a launcher that keeps its records in dir, and kills what runs that
// were killed themselves have left up, by their records there. An empty dir is
// the default one.
func New(dir string) (*Launcher, error) {
	var err error
	if dir == "" {
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for what runs: %w", err)
	}
	// One at a time: a lock that another run has made and not yet taken would
	// look like a dead one's.
	turn, err := takeTurn(dir)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	o, err := own(dir)
	if err != nil {
		return nil, err
	}
	l := &Launcher{dir: dir, owner: o}
	if l.swept, err = sweep(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("sweeping what earlier runs left: %w", err), o.release())
	}
	return l, nil
}

// Swept is what New killed.
func (l *Launcher) Swept() []Record { return slices.Clone(l.swept) }

// Close ends every service that is still up, the last started first, and gives
// the lock back. It may be called again.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	services, containers, closed := l.services, l.containers, l.closed
	l.services, l.containers, l.closed = nil, nil, true
	l.mu.Unlock()
	if closed {
		return nil
	}
	var errs []error
	for _, c := range slices.Backward(containers) {
		errs = append(errs, c.Stop(ctx))
	}
	for _, s := range slices.Backward(services) {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, l.owner.release())...)
}

// add keeps a service for Close; it fails once that has begun.
func (l *Launcher) add(s *Service) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the launcher is closed")
	}
	l.services = append(l.services, s)
	return nil
}

func (l *Launcher) addContainer(c *ContainerService) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the launcher is closed")
	}
	l.containers = append(l.containers, c)
	return nil
}

func (l *Launcher) removeContainer(c *ContainerService) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.containers = slices.DeleteFunc(l.containers, func(o *ContainerService) bool { return o == c })
}

func (l *Launcher) remove(s *Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.services = slices.DeleteFunc(l.services, func(o *Service) bool { return o == s })
}
