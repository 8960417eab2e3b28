package harness

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// configLines are the facts that keep two runs apart in benchstat: what must
// not be compared when it differs. Everything else goes to the manifest.
func (s *session) configLines() []string {
	lines := []string{
		"stack: " + s.settings.Stack,
		"engine: " + s.engine(),
		"model: " + s.settings.Model,
		fmt.Sprintf("concurrency: %d", s.settings.Concurrency),
		"rate: " + s.selection.arrivals.String(),
		"trace: " + s.settings.traceLine(),
		"random: " + s.settings.randomLine(),
		fmt.Sprintf("turns: %d", s.settings.Turns),
		fmt.Sprintf("requests: %d", s.settings.Requests),
		fmt.Sprintf("inputlen: %d", s.settings.InputLen),
		fmt.Sprintf("outputlen: %d", s.settings.OutputLen),
		fmt.Sprintf("seed: %d", s.settings.Seed),
		"loader: " + s.settings.Loader,
		fmt.Sprintf("evict: %v", s.settings.Evict),
	}
	if kvOnGPU { // of the cache server alone
		lines = append(lines, "kv: gpu")
	}
	return lines
}

// engine is which engine the rows run.
func (s *session) engine() string {
	if s.selection.stack.Engine == recipe.InProcess {
		return string(recipe.InProcess)
	}
	return s.settings.Engine
}

// printPlan says what will run and about how long it takes, as lines that
// benchstat passes over.
func (s *session) printPlan(w io.Writer) error {
	sel := s.selection
	var rows, workloads []string
	for _, r := range sel.rows {
		rows = append(rows, r.Name())
	}
	for _, wl := range sel.workloads {
		workloads = append(workloads, wl.Name)
	}
	fmt.Fprintf(w, "# plan: rows %s; workloads %s\n", strings.Join(rows, ", "), strings.Join(workloads, ", "))
	fmt.Fprintf(w, "# plan: %d requests a pass, %d in flight at most, rate %s, block size %d, stack %s, model %s\n",
		s.settings.Requests, s.settings.Concurrency, sel.arrivals, s.settings.BlockSize, s.settings.Stack, s.settings.Model)
	if sel.gpu.Made {
		fmt.Fprintf(w, "# plan: %s for all rows (-gpu=%s)\n", sel.gpu, s.settings.GPU)
	}
	if sel.noLoader != "" {
		fmt.Fprintf(w, "# missing: %s\n", sel.noLoader)
	}
	for _, name := range sel.missing {
		fmt.Fprintf(w, "# missing: row %s is not built in this version\n", name)
	}
	for _, r := range sel.rows {
		if missing := missingOf(r); missing != "" {
			fmt.Fprintf(w, "# missing: %s\n", missing)
		}
	}
	for _, wl := range sel.workloads {
		plan := sel.plans[wl.Name]
		note := ""
		if texts := sel.params.Texts; wl.Format != "" && texts != nil {
			note = fmt.Sprintf(", %d samples left out as too long, %d as repeats of a context, chat template %v", plan.LeftOut, texts.Duplicates, texts.Chat)
		} else if plan.LeftOut > 0 {
			note = fmt.Sprintf(", %d rows longer than the context of %d tokens left out", plan.LeftOut, sel.params.Context)
		}
		if s.settings.Evict {
			note += ", " + sel.budgets[wl.Name].String()
		}
		fmt.Fprintf(w, "# workload %s: %d requests, %d prompt tokens%s\n", wl.Name, len(plan.Requests), plan.PromptTokens(), note)
	}
	for _, r := range sel.rows {
		for _, wl := range sel.workloads {
			if why := inapplicable(r, wl); why != "" {
				fmt.Fprintf(w, "# not applicable: %s\n", why)
			}
		}
	}
	for _, reason := range sel.inapplicable {
		fmt.Fprintf(w, "# not applicable: %v\n", reason)
	}
	if sel.stack.Engine == recipe.Attach {
		requests, tokens := burden(sel.plans)
		fmt.Fprintf(w, "# attached: each sample asks somebody else's server %d requests with %d prompt tokens, less what -bench leaves out, and empties %s; a few dozen short ones before them find out what it can do\n",
			requests, tokens, map[bool]string{true: "its caches (-allowreset)", false: "nothing"}[s.settings.AllowReset])
	}
	if sel.stack.Engine != recipe.InProcess {
		fmt.Fprintf(w, "# estimate: none, for nobody knows yet how fast the engine is; artifacts in %s\n", s.where())
		return nil
	}
	estimate, err := s.estimate()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "# estimate: about %s for one sample of everything, less what -bench leaves out; artifacts in %s\n", estimate.Round(time.Second), s.where())
	return nil
}

// estimate is the time for one cycle and the proof of every cell: the tokens
// that the oracle leaves to be computed, at this machine's speed.
func (s *session) estimate() (time.Duration, error) {
	e, err := recipe.Calibrate(s.ctx, s.settings.Model)
	if err != nil {
		return 0, err
	}
	var total, waiting time.Duration
	for _, r := range s.selection.rows {
		for _, w := range s.selection.workloads {
			if !applies(r, w) {
				continue
			}
			plan := s.selection.plans[w.Name]
			cell := cellTime(e, r, plan)
			proof := float64(min(s.proofRequests(), len(plan.Requests))) / float64(len(plan.Requests))
			total += cell + time.Duration(proof*float64(cell))
			waiting += 2 * s.selection.arrivals.takes(plan.Requests) // whatever the server does
		}
	}
	cores := min(runtime.GOMAXPROCS(0), s.settings.Concurrency)
	return max(time.Duration(crowded*float64(total)/float64(cores)), waiting), nil
}

// crowded is how much longer a request takes when others compute beside it
// than in the quiet of the calibration (observed on two cores: 1.5 to 2).
const crowded = 1.75

// cellTime is one cycle on one core.
func cellTime(e *recipe.Estimator, r row.Row, plan fixtures.Plan) (total time.Duration) {
	law := recipe.Law(r.Name(), plan.BlockSize)
	oracle := fixtures.NewOracle(law)
	cold := oracle.Expect(plan, 1)
	oracle.Store(plan)
	warm := oracle.Expect(plan.Again(), 1)
	for i, request := range plan.Requests {
		prompt, output := len(request.Prompt), request.Output
		for _, hit := range []int{cold.Requests[i].Min, warm.Requests[i].Min} {
			total += e.Request(prompt, hit, output)
		}
		if plan.Warm != nil { // the reference pass
			total += e.Request(prompt, cold.Requests[i].Min, output)
		}
		if r.Supports(row.Documents) { // the upload, and the check of delivered KV
			total += 2 * e.Request(prompt, 0, 1)
		}
	}
	return total
}
