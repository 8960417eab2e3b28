package launch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Service is a process that was started.
type Service struct {
	Name string
	Log  string // file of its output

	launcher *Launcher
	record   Record
	check    Check
	refusal  []string
	begin    int64 // where its output begins in the log
	grace    time.Duration
	exited   chan struct{}
	state    *os.ProcessState // once exited is closed

	stopping sync.Once
	stopErr  error
}

// PID is the process's id, and that of its group.
func (s *Service) PID() int { return s.record.PID }

// Exited is closed when the process has ended.
func (s *Service) Exited() <-chan struct{} { return s.exited }

// Err is nil while the process runs, and a [*DiedError] after it has ended.
func (s *Service) Err() error {
	select {
	case <-s.exited:
		return &DiedError{Name: s.Name, State: s.state.String(), Code: s.state.ExitCode(), Lines: tail(s.Log)}
	default:
		return nil
	}
}

// A DiedError is a service that ended by itself.
type DiedError struct {
	Name  string
	State string   // "exit status 3", "signal: killed"
	Code  int      // of its exit; -1: a signal ended it
	Lines []string // the last ones of its log
}

func (e *DiedError) Error() string {
	return fmt.Sprintf("%s ended: %s%s", e.Name, e.State, quote(e.Lines))
}

// quote sets log lines apart from the sentence before them.
func quote(lines []string) string {
	if len(lines) == 0 {
		return "; it wrote nothing"
	}
	return "; its log ends with\n\t" + strings.Join(lines, "\n\t")
}

func (s *Service) ready(ctx context.Context) error {
	return (&waiting{
		name: s.Name, log: follower{path: s.Log, offset: s.begin}, path: s.Log, refusal: s.refusal, check: s.check, exited: s.exited, died: s.Err,
	}).ready(ctx)
}

// killWait is how long the kernel may take to end what was killed.
const killWait = 5 * time.Second

// Stop ends the process and whatever it has started: TERM to its group, and
// KILL to what is left of that after the grace, or when ctx ends. It may be
// called again.
func (s *Service) Stop(ctx context.Context) error {
	s.stopping.Do(func() {
		s.stopErr = s.stop(ctx)
		s.launcher.remove(s)
	})
	return s.stopErr
}

func (s *Service) stop(ctx context.Context) error {
	s.signal(syscall.SIGTERM)
	ended := func() bool { return s.Err() != nil && !groupAlive(s.record.PID) }
	if !within(ctx, s.grace, ended) {
		s.signal(syscall.SIGKILL)
		if !within(context.WithoutCancel(ctx), killWait, ended) {
			return fmt.Errorf("stopping %s: process group %d is still there %s after it was killed", s.Name, s.record.PID, killWait)
		}
	}
	if err := killMarked(s.record); err != nil { // what left the group
		return fmt.Errorf("stopping %s: %w", s.Name, err)
	}
	return s.record.remove()
}

// Keep leaves the process up when the launcher closes, and keeps later runs
// from sweeping it. Ending it is up to a person from now on.
func (s *Service) Keep() error {
	s.record.Kept = true
	if err := s.record.write(); err != nil {
		return fmt.Errorf("keeping %s: %w", s.Name, err)
	}
	s.launcher.remove(s)
	return nil
}

// End is the command with which a person ends it.
func (s *Service) End() string { return s.record.End() }

// Kill ends the process and its group at once, as a crash would; its record
// stays until Stop.
func (s *Service) Kill() { s.signal(syscall.SIGKILL) }

// signal reaches the whole group; one that is gone needs none.
func (s *Service) signal(sig syscall.Signal) { _ = syscall.Kill(-s.record.PID, sig) }

// within waits for a condition, for as long as limit and ctx allow.
func within(ctx context.Context, limit time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery / 10)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
