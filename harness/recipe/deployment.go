package recipe

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/harness/host"
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
			for name, p := range all {
				if p.Container != nil {
					p.Container.Image = known().Images[name]
				}
			}
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
	cache, err := host.CacheDir()
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
	Docker   bool                             // services run in containers where they can; else only those that cannot run otherwise
	DaseR    string                           // directory of the executables with which DaseR and its vLLM run; empty: nobody named one
	GPUs     []string                         // of the host, by index, for containers that want them; none: all
	Images   map[string]string                // of containers, by service, in place of those of the rows
	Strict   bool                             // equal inputs are to give equal bits, whatever the batch
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

// Row is the row of a file, to be started as the deployment says. What a file calls
// exact, and how far it rounds, is so on a CPU with its threads pinned: on a GPU the
// bits of an output depend on what else is in the batch, unless that is asked for,
// and then all of them are held to it.
func (d Deployment) Row(f File) row.Row {
	f.Services = slices.Clone(f.Services)
	for i, s := range f.Services {
		if image := d.Images[s.Name]; image != "" && s.Container != nil {
			c := *s.Container
			c.Image = image
			f.Services[i].Container = &c
		}
	}
	r := deployedRow{spec: f.spec(), file: f, deployment: d}
	if slices.ContainsFunc(f.Services, d.onGPU) {
		r.exact, r.rounding = r.exact && d.Strict, 0
	}
	return r
}

// Sized is the model as the deployment's engine holds it: its KV may have another
// type than its weights. A model that an engine brings says itself how large its is.
func (d Deployment) Sized(m Model) Model {
	if bytes := programs()[d.Engine].KVValue; bytes > 0 && !d.Docker && m.Dir != "" {
		m.Facts.DTypeBytes = bytes
	}
	return m
}

// onGPU says whether a service is to get GPUs.
func (d Deployment) onGPU(s ServiceFile) bool { return d.contained(s) && s.Container.GPU }

// deployedRow is a spec on services that are started for it.
type deployedRow struct {
	spec
	file       File
	deployment Deployment
}

// contained says whether a service is to run in a container.
func (d Deployment) contained(s ServiceFile) bool {
	return s.Container != nil && (d.Docker || len(s.Argv) == 0)
}

// Containers are the services that run in one.
func (r deployedRow) Containers() (names []string) {
	for _, s := range r.file.Services {
		if r.deployment.contained(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Missing says what has to be installed before the row can start, and how;
// empty: nothing.
func (r deployedRow) Missing() string {
	var needs launch.Needs
	for _, s := range r.file.Services {
		if r.deployment.contained(s) {
			needs.Images = append(needs.Images, s.Container.Image)
			if r.deployment.onGPU(s) {
				needs.Devices, needs.GPUImage = launch.GPUs(r.deployment.GPUs...), s.Container.Image
			}
			continue
		}
		if r.deployment.Docker {
			return fmt.Sprintf("%s of row %s has no image", s.Name, r.name)
		}
		if strings.Contains(s.Argv[0], "${daser}") && r.deployment.DaseR == "" {
			return fmt.Sprintf("%s of row %s is not installed: %s", s.Name, r.name, s.Install)
		}
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
	if len(needs.Images) == 0 {
		return ""
	}
	if err := launch.Preflight(context.Background(), needs); err != nil {
		return fmt.Sprintf("row %s cannot run: %v", r.name, err)
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

// assets are the scripts among the files.
func assets() fs.FS {
	sub, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err) // it is in this binary
	}
	return sub
}
