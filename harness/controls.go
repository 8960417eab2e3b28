package harness

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// inexactProofRequests is the part of a plan that a proof covers where equal
// inputs need not give equal bits: enough for its exact tests.
const inexactProofRequests = 8

// ensureControls runs the control arms of all selected workloads, once, before
// the first row of an engine whose outputs move by themselves. They run on the
// engine alone, with its own prefix cache, and all of them in one go: a GPU
// seldom has room for two engines.
func (s *session) ensureControls() error {
	if s.selection.exact || s.selection.control == nil || recipe.Exact(s.selection.control) {
		return nil // an engine that is pinned is no control of one that is not: rows then run their own
	}
	s.controlling.Do(func() { s.controlFailure = s.runControls() })
	return s.controlFailure
}

func (s *session) runControls() (err error) {
	alone := &sharedServer{row: s.selection.control}
	start := func() (*row.Server, error) { return s.startServer(alone) }
	if !s.inProcess() {
		start = func() (*row.Server, error) { return s.live(alone.row) }
	}
	defer func() { err = errors.Join(err, alone.close()) }()
	server, err := start()
	if err != nil {
		return fmt.Errorf("starting the engine alone, for the controls: %w", err)
	}
	for _, w := range s.selection.workloads {
		if !applies(alone.row, w) {
			continue
		}
		s.progress.show("controls for " + w.Name)
		config := run.Config{
			Workload: w, Params: s.selection.params, Concurrency: s.settings.Concurrency,
			ProofRequests: s.proofRequests(), Before: fixtures.WarmUp(s.selection.params, s.inFlight()), Command: s.manifest.Command,
			Sampling: run.Sampling{Temperature: s.settings.Temperature, TopP: s.settings.TopP, Seed: s.settings.Seed},
			Controls: &s.controls, Artifacts: s.cellArtifacts("control", w.Name), Progress: s.progress.show,
		}
		_, findings, err := run.NewCell(server, config.For(alone.row)).Control(s.ctx)
		if err == nil && len(findings) > 0 {
			err = findingsError(findings)
		}
		if err != nil {
			return fmt.Errorf("controls for %s: %w", w.Name, err)
		}
	}
	return nil
}

// engineAlone is the row on which controls run.
func engineAlone(builder recipe.Builder) (row.Row, error) {
	rows, _, err := recipe.Select("engine-cache", builder)
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}

// exactRows says that the engines of all rows compute the same bits from the
// same inputs, whatever the batch.
func exactRows(rows []row.Row) bool {
	return !slices.ContainsFunc(rows, func(r row.Row) bool { return !recipe.Exact(r) })
}
