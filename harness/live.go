package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// A real engine takes half a minute and more to start, so that the tests and
// benchmarks of a run share one server for each row.

// inProcess says that the rows run on the miniature engine, which is cheap
// enough to start for each test.
func (s *session) inProcess() bool { return s.selection.stack.Engine == recipe.InProcess }

// live is the running server of a row, started when it is first asked for. It
// stays up until the session ends, or until the next row needs its GPU.
func (s *session) live(r row.Row) (*row.Server, error) {
	i := slices.IndexFunc(s.lives, func(l liveServer) bool { return l.row == r.Name() })
	if i < 0 {
		var server *row.Server
		err := s.makeRoom()
		if err == nil {
			shared := &sharedServer{row: r}
			if server, err = s.startServer(shared); err != nil { // up and no good: the next row needs its place
				err = errors.Join(err, shared.close())
			} else {
				err = s.tookGPU()
			}
		}
		s.lives = append(s.lives, liveServer{row: r.Name(), server: server, err: err})
		i = len(s.lives) - 1
	}
	return s.lives[i].server, s.lives[i].err
}

// A liveServer is a server, or why there is none: what did not start once is
// not tried again.
type liveServer struct {
	row    string
	server *row.Server
	err    error
}

// closeLives ends the servers of real rows, and whatever else was started by
// process.
func (s *session) closeLives() error {
	ctx, cancel := closeContext()
	defer cancel()
	var errs []error
	for _, l := range slices.Backward(s.lives) {
		if l.server == nil {
			continue
		}
		if s.settings.Keep && l.server.Keep != nil && s.isSelected(l.row) {
			kept, err := l.server.Keep()
			errs = append(errs, err)
			if err == nil {
				fmt.Printf("# kept: row %s: -attach %s -backend=%s -blocksize=%d -allowreset; to end it: %s\n",
					l.row, kept.Attach, l.row, s.settings.BlockSize, kept.End)
			}
		}
		if err := l.server.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing row %s: %w", l.row, err))
		}
	}
	s.lives = nil
	if s.scratch != "" {
		errs = append(errs, os.RemoveAll(s.scratch))
	}
	return errors.Join(append(errs, services.close(ctx))...)
}

// isSelected says whether a row is one of the run's, and not there for the controls
// alone.
func (s *session) isSelected(name string) bool {
	return slices.ContainsFunc(s.selection.rows, func(r row.Row) bool { return r.Name() == name })
}

// logs is the directory of the services' logs: beside the artifacts, and of one
// of its own where tests run without them.
func (s *session) logs() (string, error) {
	if s.artifacts != nil {
		return s.artifacts.Dir, nil
	}
	if s.scratch == "" {
		var err error
		if s.scratch, err = os.MkdirTemp("", "kvproof-logs-"); err != nil {
			return "", fmt.Errorf("making a directory for logs: %w", err)
		}
	}
	return s.scratch, nil
}

// LiveCell is a cell on the shared server of a row that is no miniature one,
// with content of its own. Sizes that spec leaves out are those of StartCell.
func LiveCell(tb testing.TB, r row.Row, spec TestCell) (*run.Cell, *row.Server) {
	tb.Helper()
	if missing := missingOf(r); missing != "" {
		Missing(tb, "%s.", missing)
	}
	workload, err := fixtures.ByName(cmp.Or(spec.Workload, "unique"))
	require.NoError(tb, err)
	server, err := current.live(r)
	require.NoError(tb, err)
	params, b := current.selection.params, settings.BlockSize
	params.Requests, params.Nonce = cmp.Or(spec.Requests, 4), tb.Name()
	params.InputLen, params.OutputLen = cmp.Or(spec.InputLen, 3*b+b/2), cmp.Or(spec.OutputLen, 32)
	params.RangeRatio = spec.RangeRatio
	if _, err := workload.Plan(params); err != nil {
		Missing(tb, "workload %s does not fit into a test at -blocksize=%d: %v.", workload.Name, b, err)
	}
	config := run.Config{
		Workload: workload, Params: params, Concurrency: cmp.Or(spec.Concurrency, 2), Exact: settings.Strict || server.Exact, Controls: &current.controls, ProofRequests: params.Requests,
	}
	return run.NewCell(server, config.For(r)), server
}

// Row is the selected row of that name; a test that is about it is skipped
// where it is not selected.
func Row(tb testing.TB, name string) row.Row {
	tb.Helper()
	i := slices.IndexFunc(current.selection.rows, func(r row.Row) bool { return r.Name() == name })
	if i < 0 {
		tb.Skipf("Row %s is not among those of -backend=%s.", name, settings.Backend)
	}
	return current.selection.rows[i]
}

// Context is that of the run: it ends with an interrupt.
func Context() context.Context { return current.ctx }

// RowOfFile is the row of a row file, on the engine and model of the run.
func RowOfFile(tb testing.TB, path string) row.Row {
	tb.Helper()
	f, err := recipe.ReadFile(path)
	require.NoError(tb, err)
	return recipe.Deployment{Engine: settings.Engine, Model: current.selection.model, Launcher: services.launcher, Strict: settings.Strict, GPUs: current.selection.gpu.IDs}.Row(f)
}
