package recipe

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/row"
)

// files are the built-in rows of real engines, a directory for each engine, and
// what their services run.
//
//go:embed files assets
var files embed.FS

// programs are the built-in programs by name.
var programs = sync.OnceValue(func() map[string]ServiceFile {
	text, err := files.ReadFile("files/programs.toml")
	if err == nil {
		var all map[string]ServiceFile
		if err = decodeTOML("programs.toml", string(text), &all); err == nil {
			return all
		}
	}
	panic(err) // a test reads it
})

// Engines are the engines that have built-in rows.
func Engines() []string {
	entries, err := fs.ReadDir(files, "files")
	if err != nil {
		panic(err) // it is in this binary
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// builtIn is the row of that name on an engine; false: it has none.
func builtIn(engine, name string) (File, bool, error) {
	from := path.Join("files", engine, name+".toml")
	text, err := files.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, false, nil
	}
	if err != nil {
		return File{}, false, err
	}
	f, err := parseFile(from, string(text))
	return f, err == nil, err
}

// Installed says where a built-in program must be, how to get it, and whether it
// is there.
func Installed(program string) (path, install string, ok bool) {
	p := programs()[program]
	cache, err := cacheDir()
	if err != nil || len(p.Argv) == 0 {
		return program, p.Install, false
	}
	path, err = variables{values: map[string]string{"cache": cache}}.expand(p.Argv[0])
	if err != nil {
		return program, p.Install, false
	}
	_, err = lookPath(path)
	return path, p.Install, err == nil
}

// A Deployment starts real services by process.
type Deployment struct {
	Engine   string // one of Engines
	Model    Model
	Launcher func() (*launch.Launcher, error) // asked for when something is to start
}

// names are the rows that the engine has, in the order of Names.
func (d Deployment) names() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		_, ok, _ := builtIn(d.Engine, name)
		return !ok
	})
}

func (d Deployment) build(name string) (row.Row, error) {
	f, ok, err := builtIn(d.Engine, name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("row %s is not built for the engine %s; built are %s", name, d.Engine, strings.Join(d.names(), ", "))
	}
	return d.Row(f), nil
}

// Row is the row of a file, to be started as the deployment says.
func (d Deployment) Row(f File) row.Row { return deployedRow{spec: f.spec(), file: f, deployment: d} }

// deployedRow is a spec on services that are started for it.
type deployedRow struct {
	spec
	file       File
	deployment Deployment
}

// Missing says what has to be installed before the row can start, and how;
// empty: nothing.
func (r deployedRow) Missing() string {
	for _, s := range r.file.Services {
		v, err := r.variables(row.Env{}, "")
		if err != nil {
			return err.Error()
		}
		command, err := v.expand(s.Argv[0])
		if err != nil {
			return err.Error()
		}
		if _, err := lookPath(command); err != nil {
			hint := ""
			if s.Install != "" {
				hint = ": " + s.Install
			}
			return fmt.Sprintf("%s of row %s is not installed (%s)%s", s.Name, r.name, command, hint)
		}
	}
	return ""
}

// Start starts the services in their order and assembles a server on them. The
// server's Close ends them, the last first.
func (r deployedRow) Start(ctx context.Context, env row.Env) (*row.Server, error) {
	if missing := r.Missing(); missing != "" {
		return nil, errors.New(missing)
	}
	if err := r.deployment.Model.prepare(); err != nil {
		return nil, err
	}
	launcher, err := r.deployment.Launcher()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kvproof-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for row %s: %w", r.name, err)
	}
	d := &deployed{row: r, env: env, dir: dir, launcher: launcher, urls: make(map[string]string)}
	server, err := d.start(ctx)
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("starting row %s: %w", r.name, err), d.close(closing))
	}
	return server, nil
}

// deployed is what was started for a row.
type deployed struct {
	row       deployedRow
	env       row.Env
	dir       string
	launcher  *launch.Launcher
	mu        sync.Mutex
	services  []*launch.Service
	kept      bool
	processes []launch.Process  // what they are, by the same index
	urls      map[string]string // of the services' HTTP sides
	metrics   map[string]string
	argv      map[string]string
}

func (d *deployed) start(ctx context.Context) (*row.Server, error) {
	vars, err := d.row.variables(d.env, d.dir)
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(d.dir, "assets"), assets()); err != nil {
		return nil, fmt.Errorf("writing what the services run: %w", err)
	}
	d.metrics, d.argv = make(map[string]string), make(map[string]string)
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

func (d *deployed) startService(ctx context.Context, s ServiceFile, vars variables) error {
	var errs []error
	expand := func(text string) string {
		out, err := vars.expand(text)
		errs = append(errs, err)
		return out
	}
	p := launch.Process{
		Name: s.Name, Refusal: s.Refusal, Timeout: s.Timeout.Duration, Grace: s.Grace.Duration,
		Log: filepath.Join(d.logs(), d.row.name+"-"+s.Name+".log"),
	}
	for _, arg := range slices.Concat(s.Argv, s.Args) {
		p.Argv = append(p.Argv, expand(arg))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		p.Env = append(p.Env, name+"="+expand(s.Env[name]))
	}
	p.Ports = vars.ports()
	d.urls[s.Name] = expand(s.URL)
	d.metrics[s.Name] = d.urls[s.Name] + "/metrics"
	if s.Metrics != "" {
		d.metrics[s.Name] = expand(s.Metrics)
	}
	d.argv[s.Name] = strings.Join(p.Argv, " ")
	switch ready := expand(s.Ready); {
	case strings.HasPrefix(ready, "http"):
		p.Ready = launch.HTTP(ready)
	default:
		p.Ready = launch.TCP(ready)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("service %s: %w", s.Name, err)
	}
	service, err := d.launcher.Start(ctx, p)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services, d.processes = append(d.services, service), append(d.processes, p)
	return nil
}

// assets are the scripts among the files.
func assets() fs.FS {
	sub, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err) // it is in this binary
	}
	return sub
}
