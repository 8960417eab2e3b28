package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// placeLabel is beside ownerLabel on every container: whose the path of that lock
// is. A container engine may serve several hosts, and processes of one host that
// see different file systems; only where the place is this one can it be asked
// whether the lock is held.
const placeLabel = "dev.kvproof.place"

// A place is where a run has its lock, as the words of its label.
type place struct {
	host string // its name
	boot string // this start of it
	view string // of the file systems: the mount namespace
	dir  string // device and inode of the lock's directory; empty: there is none
}

// here is the place of this process, whose directory is not known yet.
var here = sync.OnceValue(func() place {
	p := place{host: "unknown", boot: runtime.GOOS, view: "one"} // on another system the engine is in a machine of its own
	if name, err := os.Hostname(); err == nil && name != "" {
		p.host = name
	}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.boot = strings.TrimSpace(string(boot))
	}
	if view, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		p.view = view
	}
	return p
})

// placeOf is this place with the directory of a lock.
func placeOf(lock string) place {
	p := here()
	var s syscall.Stat_t
	if err := syscall.Stat(filepath.Dir(lock), &s); err == nil {
		p.dir = fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return p
}

func (p place) String() string { return strings.Join([]string{p.host, p.boot, p.view, p.dir}, " ") }

// abandoned says whether a container is one of this host's that no run owns any
// more, and that was not kept on purpose. What cannot be told is somebody's.
func abandoned(id string, labels map[string]string, state string) bool {
	fields := strings.Split(labels[placeLabel], " ")
	if len(fields) != 4 {
		return false
	}
	lock := labels[ownerLabel]
	mine, theirs := placeOf(lock), place{fields[0], fields[1], fields[2], fields[3]}
	switch {
	case theirs.host != mine.host:
		return false
	case theirs.boot != mine.boot: // an earlier start of this host, or another one of its name
		return state == "exited" || state == "dead" // of no use to either
	case theirs.view == mine.view, mine.dir != "" && theirs.dir == mine.dir:
		_, err := os.Stat(keptPath(filepath.Dir(lock), id))
		return err != nil && !alive(lock)
	}
	return false
}
