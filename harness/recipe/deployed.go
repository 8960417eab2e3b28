package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/row"
)

// running is a service, however it runs.
type running interface {
	Err() error // nil while it runs
	Stop(context.Context) error
	Keep() error // leave it up
	End() string // the command that ends it then
}

// started is a running service, and how it was started.
type started struct {
	name string
	running
	begin func(context.Context) (running, error)
}

// deployed is what was started for a row.
type deployed struct {
	row      deployedRow
	env      row.Env
	dir      string
	launcher *launch.Launcher
	mu       sync.Mutex
	services []started // in the order of their starts
	kept     bool
	closed   bool
	urls     map[string]string // of the services' HTTP sides
	metrics  map[string]string
	argv     map[string]string
	sockets  map[string]string
}

func (d *deployed) start(ctx context.Context) (*row.Server, error) {
	if err := sweepPools(); err != nil { // of runs that were killed
		return nil, err
	}
	vars, err := d.row.variables(d.env, d.dir)
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(d.dir, "assets"), assets()); err != nil {
		return nil, fmt.Errorf("writing what the services run: %w", err)
	}
	d.metrics, d.argv, d.sockets = make(map[string]string), make(map[string]string), make(map[string]string)
	for _, s := range d.row.file.Services { // all ports first: a service may need the port of a later one
		ports, err := launch.FreePorts(len(s.Ports))
		if err != nil {
			return nil, err
		}
		for i, name := range s.Ports {
			vars.port(s.Name, name, ports[i], i == 0)
		}
	}
	if err := vars.transferConfig(d.row.file.KVTransferConfig); err != nil {
		return nil, err
	}
	for _, s := range d.row.file.Services {
		if err := d.startService(ctx, s, vars.of(s.Name)); err != nil {
			return nil, err
		}
	}
	return d.assemble(ctx)
}

// process is how a service runs as one.
func (d *deployed) process(s ServiceFile, vars variables) (launch.Process, error) {
	var errs []error
	expand := func(text string) string {
		out, err := vars.expand(text)
		errs = append(errs, err)
		return out
	}
	p := launch.Process{
		Name: s.Name, Refusal: s.Refusal, Timeout: s.Timeout.Duration, Grace: s.Grace.Duration, Scratch: d.dir,
		Log: filepath.Join(d.logs(), d.row.name+"-"+s.Name+".log"),
	}
	for _, arg := range slices.Concat(s.Argv, s.Args) {
		p.Argv = append(p.Argv, expand(arg))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		p.Env = append(p.Env, name+"="+expand(s.Env[name]))
	}
	p.Ports = vars.ports()
	switch ready := expand(s.Ready); {
	case s.IsTrue != "":
		p.Ready = isTrue(ready, s.IsTrue)
	case strings.HasPrefix(ready, "http"):
		p.Ready = launch.HTTP(ready)
	default:
		p.Ready = launch.TCP(ready)
	}
	return p, errors.Join(errs...)
}

func (d *deployed) startService(ctx context.Context, s ServiceFile, vars variables) error {
	p, err := d.process(s, vars)
	url, urlErr := vars.expand(s.URL)
	metrics, metricsErr := vars.expand(cmp.Or(s.Metrics, url+"/metrics"))
	socket, socketErr := vars.expand(s.Socket)
	if err := errors.Join(err, urlErr, metricsErr, socketErr); err != nil {
		return fmt.Errorf("service %s: %w", s.Name, err)
	}
	d.urls[s.Name], d.metrics[s.Name], d.sockets[s.Name], d.argv[s.Name] = url, metrics, socket, strings.Join(p.Argv, " ")
	begin := func(ctx context.Context) (running, error) { return d.launcher.Start(ctx, p) }
	if d.row.deployment.contained(s) {
		c, err := d.container(s, p, vars)
		if err != nil {
			return err
		}
		d.argv[s.Name] = strings.Join(slices.Concat(c.Entrypoint, c.Argv), " ")
		begin = func(ctx context.Context) (running, error) { return d.launcher.StartContainer(ctx, c) }
	}
	service, err := begin(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services = append(d.services, started{s.Name, service, begin})
	return nil
}

// container is how a service that would be the process p runs in a container.
func (d *deployed) container(s ServiceFile, p launch.Process, vars variables) (launch.Container, error) {
	var errs []error
	expand := func(texts []string) (out []string) {
		for _, text := range texts {
			expanded, err := vars.expand(text)
			out, errs = append(out, expanded), append(errs, err)
		}
		return out
	}
	c := launch.Container{
		Name: p.Name, Image: s.Container.Image, Entrypoint: expand(s.Container.Entrypoint),
		Argv: slices.Concat(expand(s.Container.Argv), expand(s.Args)), Env: slices.Clone(p.Env), Ports: p.Ports,
		Binds: expand(s.Container.Binds), IPC: s.Container.IPC, ShmBytes: s.Container.ShmGiB * gibibyte,
		Ready: p.Ready, Refusal: p.Refusal, Log: p.Log, Timeout: p.Timeout, Grace: p.Grace,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Container.Env)) {
		c.Env = append(c.Env, name+"="+expand([]string{s.Container.Env[name]})[0])
	}
	if s.Container.GPU {
		c.Devices = launch.GPUs(d.row.deployment.GPUs...)
	}
	return c, errors.Join(errs...)
}

// restart ends a service as a crash would, and starts it again.
func (d *deployed) restart(ctx context.Context, name string) error {
	services := d.snapshot()
	i := slices.IndexFunc(services, func(s started) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("restarting %s: row %s has no such service", name, d.row.name)
	}
	s := services[i]
	if process, ok := s.running.(*launch.Service); ok {
		process.Kill()
	}
	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("restarting %s: %w", name, err)
	}
	again, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("restarting %s: %w", name, err)
	}
	if !d.replace(i, again) {
		return errors.Join(fmt.Errorf("restarting %s: row %s was closed meanwhile", name, d.row.name), again.Stop(ctx))
	}
	return nil
}

// snapshot are the services at one moment.
func (d *deployed) snapshot() []started {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.services)
}

// replace puts a service in the place of one that ended; false: the row is closed,
// and nobody would end it.
func (d *deployed) replace(i int, again running) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.services[i].running = again
	}
	return !d.closed
}

// logs is where the services' logs go: beside the artifacts, or with the row's
// own directory.
func (d *deployed) logs() string {
	if d.env.Dir != "" {
		return filepath.Join(d.env.Dir, "logs")
	}
	return filepath.Join(d.dir, "logs")
}

// died is the first service that ended by itself; nil: all run.
func (d *deployed) died() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.services {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// keep leaves the services up and returns an -attach value for them, and how to end
// them, the last one first.
func (d *deployed) keep() (row.Kept, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := row.Kept{Attach: "engine=" + d.urls[engineProbe]}
	var ends []string
	for _, s := range d.services {
		if err := s.Keep(); err != nil {
			return row.Kept{}, err
		}
		ends = append(ends, s.End())
		if s.name == "lmcache" || s.name == "daser" {
			kept.Attach += "," + s.name + "=" + d.urls[s.name]
		}
	}
	slices.Reverse(ends)
	kept.End = strings.Join(append(ends, "rm -rf "+quoted(d.dir)), "; ")
	d.kept = true
	return kept, nil
}

// quoted is a word for a shell, whatever is in it.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func (d *deployed) close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	services, kept := slices.Clone(d.services), d.kept
	d.mu.Unlock()
	if kept {
		return nil
	}
	var errs []error
	for _, s := range slices.Backward(services) {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, removePool(d.dir), os.RemoveAll(d.dir))...)
}
