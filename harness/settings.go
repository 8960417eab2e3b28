package harness

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/host"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// A selection is what valid settings come to.
type selection struct {
	stack        recipe.Stack
	gpu          gpu.Choice // of all rows
	model        recipe.Model
	rows         []row.Row
	missing      []string // rows of "all" that this build lacks
	exact        bool     // equal inputs give equal bits, or are to: any difference is a fault
	control      row.Row  // the engine alone, for the controls where that is not so
	workloads    []fixtures.Workload
	inapplicable []error          // workloads of "all" that the sizes leave no room for
	samples      []dataset.Sample // of the workload of text, before they are token ids
	params       fixtures.Params
	arrivals     arrivals
	plans        map[string]fixtures.Plan     // by workload
	prepared     map[string]artifact.Prepared // by workload
	budgets      map[string]fixtures.Budgets  // of the caches' tiers under -evict, by workload
	cacheBytes   int64                        // that a cache must keep without -evict
	maxL1, maxL2 int64                        // bytes; 0: what the machine allows
	vllm         string                       // path of the executable behind -loader=vllm-bench
	noLoader     string                       // why it cannot run, as a sentence
	results      string
}

func rowNames() []string      { return recipe.Names() }
func workloadNames() []string { return fixtures.Names() }

// resolve checks every setting before any directory, port or process exists.
// Each error names the flag, its value and what would be right.
func (s *Settings) resolve() (selection, error) {
	var sel selection
	errs := slices.Clone(s.errs)
	wrong := func(flag string, value any, format string, args ...any) {
		errs = append(errs, fmt.Errorf("-%s=%v: %w", flag, value, fmt.Errorf(format, args...)))
	}

	stack, err := recipe.ParseStack(s.Stack)
	if err != nil {
		wrong("stack", s.Stack, "%w", err)
		return sel, errors.Join(errs...)
	}
	files, err := s.readRowFiles()
	if err != nil {
		wrong("rowfile", s.RowFile, "%w", err)
	}
	if len(files) > 0 && !s.given()["backend"] && stack.Engine == recipe.InProcess {
		s.Stack = string(recipe.Process)
		stack = recipe.Stack{Engine: recipe.Process, LMCache: recipe.Process, DaseR: recipe.Process}
	}
	if s.Attach != "" {
		s.Stack, stack = string(recipe.Attach), recipe.Stack{Engine: recipe.Attach, LMCache: recipe.Attach, DaseR: recipe.Attach}
	}
	s.byStack(stack)
	sel.stack = stack
	sel.gpu = s.chooseGPU(stack, wrong)
	builder, model := s.deploy(stack, sel.gpu, files, wrong)
	sel.model = model
	s.selectRows(&sel, builder, files, wrong)
	if sel.exact = s.Strict || exactRows(sel.rows); !sel.exact && len(files) == 0 && stack.Engine != recipe.Attach { // a row of a file is its own control
		if sel.control, err = engineAlone(builder); err != nil {
			wrong("model", s.Model, "%w", err)
		}
	}
	if s.Keep && sel.gpu.Made && stack.Engine == recipe.Docker && len(sel.rows) > 1 {
		wrong("keep", s.Keep, "a GPU has room for one engine: name the row to keep, e.g. -backend=%s", sel.rows[0].Name())
	}
	if s.Require && len(sel.missing) > 0 {
		wrong("require", true, "rows %s of -backend=%s are not built in this version; name the rows to run", strings.Join(sel.missing, ", "), s.Backend)
	}
	if sel.workloads, err = selectWorkloads(s.Workload); err != nil {
		wrong("workload", s.Workload, "%w", err)
	}
	for _, f := range []struct {
		name  string
		value int
		hint  string
	}{
		{"blocksize", s.BlockSize, "the block size must be positive, e.g. 16, 32, 64 or 128 tokens"},
		{"requests", s.Requests, "a pass needs at least one request"},
		{"concurrency", s.Concurrency, "at least one request must be in flight"},
		{"inputlen", s.InputLen, "a prompt needs at least one token"},
		{"outputlen", s.OutputLen, "at least one token must be generated"},
	} {
		if f.value <= 0 {
			wrong(f.name, f.value, "%s", f.hint)
		}
	}
	sel.arrivals = s.parseArrivals(wrong)
	window, err := parseWindow(s.Window)
	if err != nil {
		wrong("window", s.Window, "%w", err)
	}
	s.checkTraces(&sel, wrong)
	s.checkLoader(&sel, wrong)
	s.checkSynthetic(&sel, wrong)
	if err := s.readData(&sel); err != nil {
		errs = append(errs, err)
	}
	if s.ContextLen < 0 || s.ContextLen > model.Context {
		wrong("contextlen", s.ContextLen, "want 1 to %d, the context of the model, or 0 for that", model.Context)
	}
	sel.maxL1, sel.maxL2 = s.checkLimits(wrong)
	if _, err := s.kvShape(); err != nil && s.BlockSize > 0 {
		wrong("kvshape", s.KVShape, "%w", err)
	}
	if sel.results, err = resultsDirectory(s.Results); err != nil {
		wrong("results", s.Results, "%w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return sel, err
	}

	sel.params = fixtures.Params{
		Requests: s.Requests, InputLen: s.InputLen, OutputLen: s.OutputLen, BlockSize: s.BlockSize,
		Context: cmp.Or(s.ContextLen, model.Context), Vocab: model.Vocab, Seed: s.Seed, Nonce: s.Nonce, Data: s.Data, Verbatim: s.Verbatim,
		LengthScale: s.LengthScale, Window: window, PrefixLen: s.PrefixLen, RangeRatio: s.RangeRatio, Turns: s.Turns,
	}
	return sel, nil
}

// plan makes the plan of each workload and sizes the caches for them. Plans are
// pure, so what cannot be planned is known before anything that is measured
// starts; text must be token ids by now.
func (s *Settings) plan(sel *selection) error {
	var errs []error
	sel.plans = make(map[string]fixtures.Plan)
	fitting := sel.workloads[:0:0]
	for _, w := range sel.workloads {
		if w.Format != "" && sel.params.Texts == nil { // a test tokenizes for its own cell
			fitting = append(fitting, w)
			continue
		}
		switch plan, err := w.Plan(sel.params); {
		case err == nil:
			sel.plans[w.Name] = plan
			fitting = append(fitting, w)
		case s.Workload == "all" && tooShort(err):
			sel.inapplicable = append(sel.inapplicable, s.planError(w.Name, err))
		default:
			errs = append(errs, s.planError(w.Name, err))
		}
	}
	sel.workloads = fitting
	for _, r := range sel.rows {
		if s.Backend != "all" && !slices.ContainsFunc(sel.workloads, func(w fixtures.Workload) bool { return applies(r, w) }) {
			errs = append(errs, fmt.Errorf("-workload=%s: none of them applies to row %s, which needs documents", s.Workload, r.Name()))
		}
	}
	if err := s.size(sel, sel.model.Facts); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// size plans the memory of the caches on what this machine has free before
// anything runs: 1.5 times the largest working set, or under -evict two tiers
// for each workload.
func (s *Settings) size(sel *selection, facts fixtures.ModelFacts) error {
	slot, err := facts.SlotBytes(s.BlockSize, 1)
	if err != nil {
		return err
	}
	limits, err := host.ReadLimits(sel.results)
	if err != nil {
		return err
	}
	limits.MaxL1, limits.MaxL2 = sel.maxL1, sel.maxL2
	memory, err := host.ReadMemory()
	if err != nil {
		return err
	}
	sel.budgets = make(map[string]fixtures.Budgets)
	sel.prepared = make(map[string]artifact.Prepared)
	var errs []error
	for _, w := range sel.workloads {
		if _, planned := sel.plans[w.Name]; !planned {
			continue
		}
		set, err := s.workingSet(sel.plans[w.Name])
		if err != nil {
			return err
		}
		if sel.prepared[w.Name], err = s.prepared(sel.plans[w.Name], set, slot, sel.params); err != nil {
			return err
		}
		if s.Evict {
			if sel.budgets[w.Name], err = fixtures.Size(set, slot, limits, true); err != nil {
				errs = append(errs, fmt.Errorf("-evict: workload %s: %w", w.Name, err))
			}
			continue
		}
		need := int64(set.Blocks) * slot * 3 / 2
		if most := memory.Available / 10 * 8; need > most {
			errs = append(errs, fmt.Errorf("-requests=%d: workload %s: 1.5 times its working set is %s, and 80%% of the available memory %s; take fewer or shorter requests, or -evict",
				s.Requests, w.Name, fixtures.HumanSize(need), fixtures.HumanSize(most)))
		}
		sel.cacheBytes = max(sel.cacheBytes, need)
	}
	return errors.Join(errs...)
}

// tooShort says that a workload needs longer prompts than -inputlen.
func tooShort(err error) bool {
	var param *fixtures.ParamError
	return errors.As(err, &param) && param.Param == "InputLen" && strings.HasPrefix(param.Want, "at least")
}

// planError names the flag behind what a workload refuses.
func (s *Settings) planError(workload string, err error) error {
	var param *fixtures.ParamError
	switch {
	case !errors.As(err, &param) && workload == "trace" && s.Data != "":
		return fmt.Errorf("-data=%s: %w", s.Data, err)
	case param == nil:
		return fmt.Errorf("-workload=%s: %w", s.Workload, err)
	case param.Param == "Context":
		return fmt.Errorf("-blocksize=%d: workload %s: the context of the model is %v tokens, want %s", s.BlockSize, workload, param.Value, param.Want)
	default:
		return fmt.Errorf("-%s=%v: workload %s: want %s", strings.ToLower(param.Param), param.Value, workload, param.Want)
	}
}

func selectWorkloads(list string) ([]fixtures.Workload, error) {
	if list == "all" {
		return slices.DeleteFunc(fixtures.Workloads(), func(w fixtures.Workload) bool { return w.NeedsFile || w.Beyond }), nil
	}
	var selected []fixtures.Workload
	seen := make(map[string]bool)
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if name == "all" {
			return nil, fmt.Errorf("all cannot be part of a list; the workloads are %s", strings.Join(workloadNames(), ", "))
		}
		w, err := fixtures.ByName(name)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("%s is listed twice", name)
		}
		seen[name] = true
		selected = append(selected, w)
	}
	return selected, nil
}

// resultsDirectory is path, or results/ at the root of the module that the
// test runs in (or here, where a moved binary finds no module).
func resultsDirectory(path string) (string, error) {
	if path == "" {
		root, err := os.Getwd()
		if err != nil {
			return "", err
		}
		for dir := root; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				root = dir
				break
			}
		}
		path = filepath.Join(root, "results")
	}
	return path, artifact.CheckWritable(path)
}
