package harness

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// sizes are the defaults of flags whose right value depends on how the engine
// comes to be, where they are not the miniature engine's.
var sizes = map[recipe.Kind]map[string]string{
	recipe.Process: {"requests": "16", "concurrency": "4", "inputlen": "1024", "outputlen": "64", "model": "tiny"},
	recipe.Docker:  {"requests": "200", "concurrency": "16", "inputlen": "8192", "outputlen": "64"},
	recipe.Attach:  {"requests": "200", "concurrency": "16", "inputlen": "8192", "outputlen": "64"},
}

// given are the flags that somebody has set.
func (s *Settings) given() map[string]bool {
	given := make(map[string]bool)
	s.all.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return given
}

// byStack sets the defaults that depend on the stack, of flags that nobody has
// given.
func (s *Settings) byStack(stack recipe.Stack) {
	given := s.given()
	for name, value := range sizes[stack.Engine] {
		if !given[name] {
			if err := s.own.Set(name, value); err != nil {
				s.errs = append(s.errs, fmt.Errorf("-%s=%s: %w", name, value, err))
			}
		}
	}
}

// readRowFiles reads the files of -rowfile.
func (s *Settings) readRowFiles() (files []recipe.File, err error) {
	if s.RowFile == "" {
		return nil, nil
	}
	for path := range strings.SplitSeq(s.RowFile, ",") {
		f, err := recipe.ReadFile(strings.TrimSpace(path))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// selectRows are the rows of -backend and those of the files.
func (s *Settings) selectRows(sel *selection, builder recipe.Builder, files []recipe.File, wrong func(flag string, value any, format string, args ...any)) {
	var err error
	if len(files) == 0 || s.given()["backend"] {
		if sel.rows, sel.missing, err = recipe.Select(s.Backend, builder); err != nil {
			wrong("backend", s.Backend, "%w", err)
		}
	}
	for _, f := range files {
		deployment, real := builder.(recipe.Deployment)
		switch {
		case !real:
			wrong("rowfile", s.RowFile, "its rows are of real engines, those of -backend=%s of the miniature one; add -stack=engine=process, or leave -backend out", s.Backend)
		case slices.ContainsFunc(sel.rows, func(r row.Row) bool { return r.Name() == f.Row }):
			wrong("rowfile", s.RowFile, "row %s is there already: give yours another name", f.Row)
		default:
			sel.rows = append(sel.rows, deployment.Row(f))
		}
	}
	if deployment, real := builder.(recipe.Deployment); real && len(sel.rows) > 0 {
		if err := checkImages(deployment, sel.rows); err != nil {
			wrong("image", s.Image, "%w", err)
		}
	}
}

// deploy says who makes the rows of a stack, and of which model.
func (s *Settings) deploy(stack recipe.Stack, choice gpu.Choice, files []recipe.File, wrong func(flag string, value any, format string, args ...any)) (recipe.Builder, recipe.Model) {
	if s.Image != "" && stack.Engine != recipe.Docker {
		wrong("image", s.Image, "it is of a container; add -stack=docker")
	}
	switch stack.Engine {
	case recipe.InProcess:
		if s.Keep {
			wrong("keep", s.Keep, "the miniature stack lives in this process and ends with it; kvproof mini serves one for longer")
		}
		mini := recipe.Mini{Model: s.Model}
		switch {
		case stack.DaseR != recipe.InProcess || stack.LMCache != recipe.InProcess && stack.LMCache != recipe.Process:
			wrong("stack", s.Stack, "beside the miniature engine only LMCache can be another one, by process: -stack=engine=mini,lmcache=process")
		case stack.LMCache == recipe.Process && s.Evict:
			wrong("evict", s.Evict, "tiers of a real cache server are not sized in this version; use -stack=mini")
		case stack.LMCache == recipe.Process:
			mini.Launcher = services.launcher
		}
		model, err := recipe.MiniModel(s.Model)
		if err != nil {
			wrong("model", s.Model, "%w", err)
		}
		return mini, recipe.Model{Name: s.Model, Context: model.Context, Vocab: model.Vocab, Facts: recipe.MiniFacts(model)}
	case recipe.Process:
		if stack.LMCache != recipe.Process {
			wrong("stack", s.Stack, "an engine by process needs its cache server by process, too")
		}
	case recipe.Docker:
		if stack.LMCache != recipe.Docker || stack.DaseR != recipe.Docker {
			wrong("stack", s.Stack, "an engine in a container needs its cache server in one, too")
		}
	case recipe.Attach:
		return s.attached(wrong)
	default:
		wrong("stack", s.Stack, "the %s stack is not built in this version; use mini, process or docker, or -attach", stack.Engine)
	}
	images := s.images(wrong)
	if !slices.Contains(recipe.Engines(), s.Engine) {
		wrong("engine", s.Engine, "the engines are %s", strings.Join(recipe.Engines(), ", "))
	}
	if s.Evict {
		wrong("evict", s.Evict, "tiers of real stores are not sized in this version; use -stack=mini")
	}
	model := s.realModel(stack.Engine, files, wrong)
	if s.ContextLen == 0 && stack.Engine == recipe.Process { // a context costs memory and start-up time
		model.Context = min(model.Context, 4096)
	}
	daser := ""
	if s.DaseR != "" {
		var err error
		if daser, err = recipe.FindDaseR(s.DaseR); err != nil {
			wrong("daser", s.DaseR, "%w", err)
		}
	}
	d := recipe.Deployment{Engine: s.Engine, DaseR: daser, Launcher: services.launcher, Docker: stack.Engine == recipe.Docker, Strict: s.Strict, GPUs: choice.IDs, Images: images, Model: model}
	return d, d.Sized(model)
}

// checkImages refuses images for what no row has in a container: it would run as if
// nobody had asked for them.
func checkImages(deployment recipe.Deployment, rows []row.Row) error {
	var there []string
	for _, r := range rows {
		if c, ok := r.(interface{ Containers() []string }); ok {
			there = append(there, c.Containers()...)
		}
	}
	slices.Sort(there)
	for _, service := range slices.Sorted(maps.Keys(deployment.Images)) {
		if !slices.Contains(there, service) {
			return fmt.Errorf("no row of this run has %s in a container; there are %s", service, strings.Join(slices.Compact(there), ", "))
		}
	}
	return nil
}

// images are those of -image, by service.
func (s *Settings) images(wrong func(flag string, value any, format string, args ...any)) map[string]string {
	if s.Image == "" {
		return nil
	}
	images := make(map[string]string)
	for part := range strings.SplitSeq(s.Image, ",") {
		service, image, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			service, image = "engine", service
		}
		if service == "" || image == "" || images[service] != "" {
			wrong("image", s.Image, "want an image, or a list of service=image with each service once")
		}
		images[service] = image
	}
	return images
}

// realModel is the model of engines that are not the miniature one. In containers
// there is no default: figures of a model that nobody serves would answer nobody's
// question. Where no container can have a GPU, that is what there is to say.
func (s *Settings) realModel(engine recipe.Kind, files []recipe.File, wrong func(flag string, value any, format string, args ...any)) recipe.Model {
	brought := slices.ContainsFunc(files, func(f recipe.File) bool { return f.Model != nil })
	if engine == recipe.Docker && !s.given()["model"] {
		s.Model = "tiny"
		if !brought && launch.Preflight(context.Background(), launch.Needs{Devices: launch.GPUs()}) == nil {
			wrong("model", "", "say which model the engines serve: -model=/path/of/a/model in Hugging Face's layout, or -model=tiny for a run that needs no download and shows no figures of use")
		}
	}
	model, err := recipe.RealModel(s.Model)
	if err != nil {
		wrong("model", s.Model, "%w", err)
		return model
	}
	if model, err = model.Of(files); err != nil {
		wrong("rowfile", s.RowFile, "%w", err)
	}
	s.fitInput(model)
	return model
}

// fitInput cuts a length of prompts that nobody has given, which is one for larger
// models, to what the context of the run holds.
func (s *Settings) fitInput(model recipe.Model) {
	if room := cmp.Or(s.ContextLen, model.Context) - s.OutputLen; room > 0 && !s.given()["inputlen"] {
		s.InputLen = min(s.InputLen, room)
	}
}

// missingOf says what has to be installed before a row can start; empty:
// nothing.
func missingOf(r row.Row) string {
	if m, ok := r.(interface{ Missing() string }); ok {
		return m.Missing()
	}
	return ""
}

// applies says whether a row can do anything with a workload: one that reuses
// documents needs prompts that are made of them, and one that keeps shared
// parts by chance needs prompts that share nothing.
func applies(r row.Row, w fixtures.Workload) bool { return inapplicable(r, w) == "" }

// inapplicable is why a row can do nothing with a workload; empty: it can.
func inapplicable(r row.Row, w fixtures.Workload) string {
	switch {
	case r.Supports(row.Documents) && !w.Documents:
		return fmt.Sprintf("workload %s has no documents, which row %s reuses", w.Name, r.Name())
	case r.Supports(row.Unshared) && !w.Unshared:
		return fmt.Sprintf("prompts of workload %s share parts, of which row %s keeps what chance leaves it", w.Name, r.Name())
	}
	return ""
}

// services is what starts services by process. It begins with the first
// service, so that a run of the miniature stack touches nothing outside.
var services processes

type processes struct {
	mu      sync.Mutex
	started *launch.Launcher
}

func (p *processes) launcher() (_ *launch.Launcher, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		p.started, err = launch.New("")
	}
	return p.started, err
}

// close ends whatever still runs.
func (p *processes) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		return nil
	}
	err := p.started.Close(ctx)
	p.started = nil
	return err
}

// whyFailed adds to an error that a service has ended by itself, which is
// likely its cause.
func whyFailed(server *row.Server, err error) error {
	if err == nil || server == nil || server.Died == nil {
		return err
	}
	return errors.Join(err, server.Died())
}

// engineIsMini says that the engine of a -stack value is the miniature one.
func engineIsMini(text string) bool {
	stack, err := recipe.ParseStack(text)
	return err != nil || stack.Engine == recipe.InProcess
}
