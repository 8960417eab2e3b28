package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Process is a command to run as a service.
type Process struct {
	Name    string   // of the service, for errors and records
	Argv    []string // the first is looked up on the PATH
	Env     []string // NAME=VALUE, over this process's own environment
	Dir     string   // working directory; empty: this one
	Ports   []int    // on loopback that it will listen on, which must be free
	Ready   Check    // nil: ready when it runs
	Refusal []string // parts of log lines with which it says that it will not come up
	Scratch string   // directory of its own, which whoever sweeps it removes too; empty: none
	Log     string   // file that its output is added to; it is made with its directory

	Timeout time.Duration // until it must be ready; 0: DefaultTimeout
	Grace   time.Duration // from TERM to KILL; 0: DefaultGrace
}

// Limits where a Process says none.
const (
	DefaultTimeout = 240 * time.Second // a real engine imports for half a minute on an idle machine
	DefaultGrace   = 15 * time.Second
)

// pollEvery is how often readiness is asked for.
const pollEvery = 50 * time.Millisecond

// Start starts a process in a group of its own and returns when it is ready.
// ctx bounds the start alone. A process that ends before it is ready gives a
// [*DiedError]; whatever was started is ended when Start fails.
func (l *Launcher) Start(ctx context.Context, p Process) (*Service, error) {
	s, err := l.start(p)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(p.Timeout, DefaultTimeout),
		fmt.Errorf("not ready within %s", cmp.Or(p.Timeout, DefaultTimeout)))
	defer cancel()
	if err := s.ready(ctx); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace+killWait)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("starting %s: %w", p.Name, err), s.Stop(stop))
	}
	return s, nil
}

// start brings the process into being, recorded and watched.
func (l *Launcher) start(p Process) (*Service, error) {
	if p.Name == "" || len(p.Argv) == 0 || p.Log == "" {
		return nil, errors.New("a process needs a name, a command and a log")
	}
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return nil, err
	}
	if err := checkPorts(p.Ports); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(p.Log), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of its log: %w", err)
	}
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	defer log.Close() // the process has its own
	begin, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}

	mark := rand.Text()
	cmd := &exec.Cmd{
		Path: path, Args: p.Argv, Dir: p.Dir, Stdout: log, Stderr: log,
		Env:         append(append(ownEnvironment(), keepEnvironment), append(p.Env, markVariable+"="+mark)...),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	s := &Service{
		Name: p.Name, Log: p.Log, launcher: l, check: p.Ready, refusal: p.Refusal, begin: begin,
		grace: cmp.Or(p.Grace, DefaultGrace), exited: make(chan struct{}),
		record: Record{
			Name: p.Name, Mark: mark, Argv: p.Argv, Owner: l.owner.path(), Started: time.Now(), Log: p.Log, Scratch: p.Scratch,
			path: recordPath(l.dir, mark),
		},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(p.Argv, " "), err)
	}
	s.record.PID = cmd.Process.Pid
	go func() { // ends with the process
		defer close(s.exited)
		_ = cmd.Wait() // the state says it all
		s.state = cmd.ProcessState
	}()
	if err := errors.Join(s.record.write(), l.add(s)); err != nil {
		stop, cancel := context.WithTimeout(context.Background(), s.grace+killWait)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stop))
	}
	return s, nil
}
