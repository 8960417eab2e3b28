package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Record says what was started, in a file of its own, from just after its
// start until its end. What is in it of a run that was killed is swept by the
// next one.
type Record struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"` // and process group
	Mark    string    `json:"mark"`
	Argv    []string  `json:"argv"`
	Owner   string    `json:"owner"` // lock of the run
	Started time.Time `json:"started"`
	Log     string    `json:"log,omitempty"`
	Scratch string    `json:"scratch,omitempty"` // directory that goes with it
	Kept    bool      `json:"kept,omitempty"`    // left up on purpose: nobody sweeps it

	path string
}

// End is the command that ends it.
func (r Record) End() string { return fmt.Sprintf("kill -- -%d", r.PID) }

// markVariable is in the environment of every process that is started, and so
// in that of its children: with it a group is known again after its leader has
// died and process ids have been used anew.
const markVariable = "KVP_SERVICE"

// keepEnvironment keeps Python's setproctitle from writing a process's title over
// its environment, and so over the mark: vLLM's engine and workers give themselves
// titles (observed with setproctitle 1.3.8).
const keepEnvironment = "SPT_NOENV=1"

func recordPath(dir, mark string) string { return filepath.Join(dir, mark+".json") }

// write replaces the record's file in one step.
func (r *Record) write() error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("recording what was started: %w", err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		return fmt.Errorf("recording what was started: %w", err)
	}
	return nil
}

func (r *Record) remove() error { return removeIfThere(r.path) }

// Records returns what runs have started below dir and not ended yet, kept
// services included.
func Records(dir string) ([]Record, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var records []Record
	var errs []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // another run swept it just now
		}
		r := Record{path: path}
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && (r.PID <= 1 || r.Mark == "" || filepath.Base(path) != r.Mark+".json") {
			err = errors.New("it names no process of ours")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the record %s: %w", path, err))
			continue
		}
		records = append(records, r)
	}
	return records, errors.Join(errs...)
}

// sweep kills what runs that no longer exist have started, and returns what it
// killed. Records of processes that are gone go, too.
func sweep(dir string) (swept []Record, err error) {
	records, err := Records(dir)
	errs := []error{err}
	for _, r := range records {
		switch {
		case len(marked(r)) == 0:
			errs = append(errs, r.remove())
			continue
		case r.Kept || alive(r.Owner):
			continue
		}
		if err := killMarked(r); err != nil {
			errs = append(errs, fmt.Errorf("sweeping %s of an earlier run: %w", r.Name, err))
			continue
		}
		if r.Scratch != "" {
			errs = append(errs, os.RemoveAll(r.Scratch))
		}
		swept = append(swept, r)
		errs = append(errs, r.remove())
	}
	return swept, errors.Join(append(errs, removeDeadLocks(dir))...)
}

// killMarked kills what carries a record's mark and waits until it is gone.
func killMarked(r Record) error {
	pids := marked(r)
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	if !within(context.Background(), killWait, func() bool { return !slices.ContainsFunc(pids, processAlive) }) {
		return fmt.Errorf("processes %v are still there %s after they were killed", pids, killWait)
	}
	return nil
}

// ownEnvironment is this process's environment without a mark, so that a run
// inside a service of another run marks its own.
func ownEnvironment() (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, markVariable+"=") {
			env = append(env, entry)
		}
	}
	return env
}
