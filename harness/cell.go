package harness

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Cell is one row, block size and workload inside a benchmark.
type Cell struct {
	session *session
	state   *cellState
	results []run.Result // since the benchmark function was entered
}

// cellState is what outlives one call of the benchmark function: -count calls
// it again for each sample, the cycle number goes on and the proof is not
// repeated.
type cellState struct {
	cell     *run.Cell
	sharing  *row.Server
	workload string
	proof    run.Proof
	failed   error // why nothing of this cell can be measured
	table    *tableRow
	timed    func(bool)
	loader   run.Loader // nil: this process sends the load
}

// cell prepares the benchmark's cell: server up, proof done. It fails the
// benchmark with the findings where that shows any.
func (s *session) cell(b *testing.B, shared *sharedServer, w fixtures.Workload, state *cellState) *Cell {
	b.Helper()
	if s.ctx.Err() != nil {
		b.Fatal("interrupted")
	}
	if state.cell == nil && state.failed == nil {
		state.failed = s.prepare(shared, w, state)
	}
	s.progress.clear()
	if state.failed != nil {
		b.Fatal(state.failed)
	}
	state.timed = timer(b, s.selection.stack.Engine == recipe.InProcess)
	return &Cell{session: s, state: state}
}

// timer brackets the requests of a pass with b's timer, and gives the client a
// processor of its own meanwhile. The engine computes in this process: without
// a spare one the Go scheduler leaves a client that has something to read
// waiting for up to its time slice of 10 ms, and warm TTFT would be that wait
// (observed: 12 ms in place of 4 on two cores).
func timer(b *testing.B, engineInside bool) func(running bool) {
	processors := runtime.GOMAXPROCS(0)
	spare := 0
	if engineInside {
		spare = 1
	}
	return func(running bool) {
		if running {
			runtime.GOMAXPROCS(processors + spare)
			b.StartTimer()
		} else {
			b.StopTimer()
			runtime.GOMAXPROCS(processors)
		}
	}
}

func (s *session) prepare(shared *sharedServer, w fixtures.Workload, state *cellState) error {
	state.workload = w.Name
	state.table = s.newTableRow(shared.row.Name(), w.Name)
	s.ensureCalibration()
	if err := s.ensureControls(); err != nil {
		state.table.fail("no controls")
		return err
	}
	server, err := shared.start()
	if err != nil {
		state.table.fail("did not start")
		return err
	}
	state.sharing = server
	config := run.Config{
		Workload: w, Params: s.selection.params, Concurrency: s.settings.Concurrency,
		Arrivals: s.selection.arrivals.schedule(), Replay: s.selection.arrivals.replay,
		Exact: s.selection.exact, Controls: &s.controls, ProofRequests: s.proofRequests(), Before: fixtures.WarmUp(s.selection.params, s.inFlight()), Command: s.manifest.Command,
		Sampling:  run.Sampling{Temperature: s.settings.Temperature, TopP: s.settings.TopP, Seed: s.settings.Seed},
		Answers:   &s.answers,
		Artifacts: s.cellArtifacts(server.Row, w.Name),
		Timed: func(running bool) {
			if running {
				s.calibration.around(s.ctx, true)
			}
			state.timed(running)
			if !running {
				s.calibration.around(s.ctx, false)
			}
		},
		Progress: s.progress.show,
	}
	if s.artifacts != nil {
		config.Manifest, config.Prepared = s.services(server), s.selection.prepared[w.Name]
	}
	state.cell, state.loader = run.NewCell(server, config.For(shared.row)), s.loader(server)
	proof, findings, err := state.cell.Proof(s.ctx)
	state.proof = proof
	if err == nil && len(findings) > 0 {
		err = whyFailed(server, errors.New("the proof is "+run.Explain(proof.Result, relative(proof.Result.Repro))))
		state.table.fail(string(findings[0].Code))
	}
	return err
}

// inFlight is how many requests can be in flight at one time.
func (s *session) inFlight() int { return min(s.settings.Concurrency, s.settings.Requests) }

// proofRequests is the part of a plan that the proof covers: all of it where
// less would fit into the first tier.
func (s *session) proofRequests() int {
	switch {
	case s.settings.Evict:
		return s.settings.Requests
	case !s.selection.exact:
		return inexactProofRequests
	}
	return proofRequests
}

func (s *session) cellArtifacts(name, workload string) *artifact.Cell {
	if s.artifacts == nil {
		return nil
	}
	return s.artifacts.Cell(name, s.settings.BlockSize, workload)
}

// Cycle runs one cycle: cold, settle, warm, over fresh content. Only the
// requests are timed. Findings fail the benchmark, and nothing is printed.
func (c *Cell) Cycle(b *testing.B) {
	b.Helper()
	b.StopTimer()
	watched := c.session.watchGPU()
	result, findings, err := c.cycle(c.session.ctx)
	watched(&result)
	c.session.progress.clear()
	if len(findings) > 0 && c.state.sharing.Died != nil && c.state.sharing.Died() != nil {
		b.Error(c.state.sharing.Died())
	}
	if len(findings) > 0 {
		b.Errorf("cycle %d is %s", result.Cycle, run.Explain(result, relative(result.Repro)))
		c.state.table.fail(string(findings[0].Code))
		if c.session.settings.Evict { // what a broken cycle left in the store decides what the next one evicts
			c.state.failed = errors.New("an earlier cycle of this cell showed a finding")
		}
	}
	if err != nil {
		b.Fatalf("cycle %d: %v", result.Cycle, err)
	}
	if len(findings) > 0 {
		b.FailNow()
	}
	if e, known := c.session.calibration.cycle(); known {
		result.Bind(e)
	}
	c.results = append(c.results, result)
	c.state.table.add(result, c.state.proof)
	c.sample(b, result)
	c.summarize(result)
	if grade := c.grade(result); c.session.settings.Require && grade != verdict.Proven {
		b.Fatalf("-require: cycle %d is %s, not proven: verdict of the proof is %s", result.Cycle, grade, c.state.proof.Verdict)
	}
	b.StartTimer()
}

// sample keeps the cycle's metrics on disk as soon as it is done.
func (c *Cell) sample(b *testing.B, result run.Result) {
	b.Helper()
	if c.session.artifacts == nil {
		return
	}
	values, err := metricsOf([]run.Result{result})
	if err != nil {
		b.Fatal(err)
	}
	sample := artifact.Sample{
		Backend: c.state.sharing.Row, Block: c.session.settings.BlockSize, Workload: c.state.workload,
		Cycle: result.Cycle, Grade: string(c.grade(result)), Metrics: make(map[string]float64, len(values)),
	}
	for _, v := range values {
		sample.Metrics[v.Unit] = v.Value
	}
	for _, l := range result.Labels {
		sample.Labels = append(sample.Labels, string(l))
	}
	if err := c.session.artifacts.AppendSample(sample); err != nil {
		b.Fatal(err)
	}
}

// relative is a path from the root of the repository, where commands are run,
// if it lies below.
func relative(path string) string {
	root, err := os.Getwd()
	if err != nil || path == "" {
		return path
	}
	for dir := root; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if below, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(below) {
				return below
			}
			break
		}
	}
	return path
}

// grade is the grade of a cycle's numbers: that of its own witnesses or of the
// proof, whichever is worse.
func (c *Cell) grade(result run.Result) verdict.Grade {
	return verdict.Worst(result.Grade(), c.state.proof.Grade)
}

// Report puts the metrics of the cycles on the benchmark's line.
func (c *Cell) Report(b *testing.B) {
	b.Helper()
	c.elapsed(b)
	values, err := metricsOf(c.results)
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range values {
		b.ReportMetric(v.Value, v.Unit)
	}
}

// metricsOf pools the requests of several cycles into one line.
func metricsOf(results []run.Result) ([]metric.Metric, error) {
	var pooled struct{ cold, warm metric.Pass }
	var match, total, uploads, prompt int
	tiers := make(map[row.Tier]int)
	var uploaded time.Duration
	for _, r := range results {
		if r.Upload.Documents > 0 {
			uploaded += r.Upload.Took
			uploads++
		}
		pooled.cold.Add(r.Cold.Timelines, r.Cold.Elapsed, r.Cold.HitTokens, r.Cold.Accounted())
		pooled.warm.Add(r.Warm.Timelines, r.Warm.Elapsed, r.Warm.HitTokens, r.Warm.Accounted())
		pooled.cold.Offered, pooled.warm.Offered = r.Cold.Offered, r.Warm.Offered
		prompt += r.Warm.PromptTokens
		for tier, tokens := range r.Warm.TierTokens {
			tiers[tier] += tokens
		}
		match += r.Comparison.Matches
		total += r.Comparison.Total
	}
	values, err := metric.Cycle(pooled.cold, pooled.warm, match, total)
	if err != nil {
		return nil, err
	}
	more := make(map[string]float64)
	if uploads > 0 {
		more[metric.Upload] = float64(uploaded) / float64(uploads)
	}
	for _, r := range results {
		if r.Client != nil {
			more[metric.ClientP99] = max(more[metric.ClientP99], float64(r.Client.P99()))
		}
	}
	for tier, tokens := range tiers {
		if unit, ok := map[row.Tier]string{row.L1: metric.L1Hit, row.L2: metric.L2Hit}[tier]; ok {
			more[unit] = percent(tokens, prompt)
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(more)) {
		value, err := metric.New(unit, more[unit])
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}
