package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	docker "github.com/ory/dockertest/v3/docker"
)

// ownerLabel is on every container that is started: the lock of its run.
const ownerLabel = "dev.kvproof.owner"

// A Container is an image to run as a service. It shares the host's network, so
// that no proxy of the container engine is in the measured path.
type Container struct {
	Name       string
	Image      string // must be there: nothing is pulled
	Entrypoint []string
	Argv       []string
	Env        []string
	Ports      []int // on loopback that it will listen on, which must be free
	Binds      []string
	IPC        string         // "host" where services share memory; empty: the engine's default
	ShmBytes   int64          // size of its /dev/shm; 0: the engine's default of 64 MiB
	Devices    *DeviceRequest // nil: none
	Ready      Check
	Refusal    []string
	Log        string
	Timeout    time.Duration // 0: DefaultTimeout
	Grace      time.Duration // 0: DefaultGrace
}

// connect reaches the container engine, and asks it first whether it is there.
func connect(ctx context.Context, devices *DeviceRequest) (*docker.Client, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("looking for a container engine: %w", err)
	}
	client := pool.Client
	if err := client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("no container engine at %s: run scripts/engine.sh up, or start Docker: %w", client.Endpoint(), err)
	}
	if devices != nil {
		client.HTTPClient.Transport = createHook{next: client.HTTPClient.Transport, devices: devices}
	}
	return client, nil
}

// StartContainer starts a container and returns when it is ready. It fails like
// Start: one that exits before gives a [*DiedError] with the end of its log. One
// that was to get GPUs must see them inside.
func (l *Launcher) StartContainer(ctx context.Context, c Container) (*ContainerService, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(c.Timeout, DefaultTimeout),
		fmt.Errorf("not ready within %s", cmp.Or(c.Timeout, DefaultTimeout)))
	defer cancel()
	s, err := l.create(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("starting %s in a container: %w", c.Name, err)
	}
	if c.Devices != nil {
		err = s.seesGPUs(ctx, c.Devices)
	}
	if err == nil {
		err = s.ready(ctx, c)
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace+killWait)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("starting %s in a container: %w", c.Name, err), s.Stop(stop))
	}
	return s, nil
}

func (l *Launcher) create(ctx context.Context, c Container) (*ContainerService, error) {
	if c.Name == "" || c.Image == "" || c.Log == "" {
		return nil, errors.New("a container needs a name, an image and a log")
	}
	if err := checkPorts(c.Ports); err != nil {
		return nil, err
	}
	client, err := connect(ctx, c.Devices)
	if err != nil {
		return nil, err
	}
	if err := l.sweepContainers(client); err != nil {
		return nil, err
	}
	if _, err := client.InspectImage(c.Image); err != nil {
		return nil, fmt.Errorf("image %s: %w; make images builds those of the suite, and nothing is pulled while a run waits", c.Image, err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of its log: %w", err)
	}
	log, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening its log: %w", err), log.Close())
	}
	created, err := client.CreateContainer(docker.CreateContainerOptions{
		Context: ctx,
		Config: &docker.Config{
			Image: c.Image, Entrypoint: c.Entrypoint, Cmd: c.Argv, Env: c.Env, Labels: map[string]string{ownerLabel: l.owner.path(), placeLabel: placeOf(l.owner.path()).String()},
		},
		HostConfig: &docker.HostConfig{NetworkMode: "host", Binds: c.Binds, IpcMode: c.IPC, ShmSize: c.ShmBytes},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating it: %w", err), log.Close())
	}
	s := &ContainerService{
		Name: c.Name, ID: created.ID, image: c.Image, client: client, launcher: l, log: log, path: c.Log, begin: begin,
		grace: cmp.Or(c.Grace, DefaultGrace), exited: make(chan struct{}),
	}
	if err := errors.Join(l.addContainer(s), explainStart(client.StartContainerWithContext(s.ID, nil, ctx))); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace+killWait)
		defer cancel()
		close(s.exited)
		return nil, errors.Join(fmt.Errorf("starting it: %w", err), s.Stop(stop))
	}
	s.watch()
	return s, nil
}

// A ContainerService is a container that was started.
type ContainerService struct {
	Name, ID string

	image    string
	client   *docker.Client
	launcher *Launcher
	log      *os.File
	path     string
	begin    int64 // where its output begins in the log
	grace    time.Duration
	exited   chan struct{}
	code     int // once exited is closed
	watching sync.WaitGroup
	end      context.CancelFunc

	stopping sync.Once
	stopErr  error
}

// watch follows the log and waits for the end, in goroutines that end with the
// container or with Stop.
func (s *ContainerService) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	logged := make(chan struct{})
	s.watching.Go(func() {
		defer close(logged)
		// Ends with the container; what it could not read is not in the log.
		_ = s.client.Logs(docker.LogsOptions{
			Context: ctx, Container: s.ID, OutputStream: s.log, ErrorStream: s.log, Follow: true, Stdout: true, Stderr: true,
		})
	})
	s.watching.Go(func() {
		if code, err := s.client.WaitContainerWithContext(s.ID, ctx); err == nil {
			select { // the end of its log says why
			case <-logged:
			case <-time.After(killWait):
			}
			s.code = code
			close(s.exited)
		}
	})
}

// Err is nil while the container runs, and a [*DiedError] after it has ended.
func (s *ContainerService) Err() error {
	select {
	case <-s.exited:
		return &DiedError{Name: s.Name, State: fmt.Sprintf("exit status %d", s.code), Code: s.code, Lines: tail(s.path)}
	default:
		return nil
	}
}

func (s *ContainerService) ready(ctx context.Context, c Container) error {
	return (&waiting{name: s.Name, log: follower{path: s.path, offset: s.begin}, path: s.path, refusal: c.Refusal, check: c.Ready, exited: s.exited, died: s.Err}).ready(ctx)
}

// Stop stops the container, removes it, and waits for its log. It may be called
// again.
func (s *ContainerService) Stop(ctx context.Context) error {
	s.stopping.Do(func() {
		var gone *docker.NoSuchContainer
		var idle *docker.ContainerNotRunning
		err := s.client.StopContainerWithContext(s.ID, uint(s.grace.Seconds()), ctx)
		if errors.As(err, &gone) || errors.As(err, &idle) {
			err = nil
		}
		removed := s.client.RemoveContainer(docker.RemoveContainerOptions{ID: s.ID, Force: true, RemoveVolumes: true, Context: context.WithoutCancel(ctx)})
		if errors.As(removed, &gone) {
			removed = nil
		}
		if s.end != nil {
			s.end()
			s.watching.Wait()
		}
		s.launcher.removeContainer(s)
		if err := errors.Join(err, removed, s.log.Close()); err != nil {
			s.stopErr = fmt.Errorf("stopping container %s of %s: %w", s.ID, s.Name, err)
		}
	})
	return s.stopErr
}

// sweepContainers removes what runs that no longer exist have left, and, once,
// before the first container of this one.
func (l *Launcher) sweepContainers(client *docker.Client) error {
	l.mu.Lock()
	swept := l.containersSwept
	l.containersSwept = true
	l.mu.Unlock()
	if swept {
		return nil
	}
	list, err := client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {ownerLabel}}})
	if err != nil {
		return fmt.Errorf("looking for containers of earlier runs: %w", err)
	}
	var errs []error
	for _, container := range list {
		if !abandoned(container.ID, container.Labels, container.State) {
			continue
		}
		err := client.RemoveContainer(docker.RemoveContainerOptions{ID: container.ID, Force: true, RemoveVolumes: true})
		var gone *docker.NoSuchContainer
		if err != nil && !errors.As(err, &gone) {
			errs = append(errs, fmt.Errorf("removing container %s of an earlier run: %w", container.ID, err))
		}
	}
	return errors.Join(errs...)
}
