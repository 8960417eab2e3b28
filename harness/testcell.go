package harness

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// A TestCell asks for a cell of its own on the miniature stack, small enough
// for a test: the block size is that of -blocksize, everything else has a
// default that fits it.
type TestCell struct {
	Row         string         // must be given
	Workload    string         // default unique
	Requests    int            // default 4
	Concurrency int            // default 2
	InputLen    int            // default 3.5 blocks
	OutputLen   int            // default 32: the least that can be called identical
	Arrivals    *load.Arrivals // default: a closed loop
	Replay      float64        // speed at which the workload's own arrivals are replayed; 0: they are not
	LengthScale float64        // of a trace
	Turns       int            // of a conversation; default 3
	RangeRatio  float64        // of the workload random
	Real        bool           // with LMCache's own server behind the miniature engine, by process
	EngineCache bool           // in front of the row lmcache: the engine's own cache, too
	Faults      []fault.Fault
	L1Share     float64       // L1 over the working set, with an L2 behind it; 0: nothing is evicted
	L1Units     int           // L1 in blocks, in place of a share
	NoL2        bool          // what leaves L1 is gone
	Inexact     bool          // equal inputs need not give equal bits: controls decide
	Controls    *run.Controls // shared by cells; nil: each has its own
	Results     string        // directory for artifacts; empty: none
	Model       string        // default: the smallest that fits
	Stall       time.Duration // default 20 s: a busy machine is no stall
}

// smallContext is the context of the small model; longer prompts need the
// default one.
const smallContext = 1024

// StartCell starts the row of spec, warms it up unless it is broken, and
// returns the cell and its server. The test's end closes it.
func StartCell(tb testing.TB, spec TestCell) (*run.Cell, *row.Server) {
	tb.Helper()
	name, params := testModel(tb, spec)
	blockSize := params.BlockSize
	model, err := recipe.MiniModel(name)
	require.NoError(tb, err)
	workload, err := fixtures.ByName(cmp.Or(spec.Workload, "unique"))
	require.NoError(tb, err)
	if workload.Format != "" {
		params.Texts = textsFor(tb, workload, params, name)
	}
	if _, err := workload.Plan(params); err != nil {
		Missing(tb, "-blocksize=%d is too large for a test on the %s model: %v.", blockSize, name, err)
	}

	builder := recipe.Mini{Model: name, Faults: spec.Faults, EngineCache: spec.EngineCache}
	if spec.Real {
		builder.Launcher = services.launcher
	}
	rows, _, err := recipe.Select(spec.Row, builder)
	require.NoError(tb, err)
	if missing := missingOf(rows[0]); missing != "" {
		Missing(tb, "%s.", missing)
	}
	concurrency := cmp.Or(spec.Concurrency, 2)
	env := row.Env{
		BlockSize: blockSize, Concurrency: concurrency, Log: tb.Output(),
		Stall: cmp.Or(spec.Stall, 20*time.Second), Dir: tb.TempDir(),
	}
	if spec.L1Share > 0 || spec.L1Units > 0 {
		env.Tiers = tiersFor(tb, spec, workload, params, recipe.MiniFacts(model))
	}
	server, err := rows[0].Start(tb.Context(), env)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := closeContext()
		defer cancel()
		require.NoError(tb, server.Close(ctx))
	})
	if spec.Real { // some of LMCache's counters appear with their first use
		require.NoError(tb, run.WarmUp(tb.Context(), server, params, 2))
	}
	config := run.Config{
		Workload: workload, Params: params, Concurrency: concurrency,
		Exact: !spec.Inexact, Controls: spec.Controls, ProofRequests: params.Requests, ResetTimeout: 2 * time.Second,
	}
	if a := spec.Arrivals; a != nil {
		config.Arrivals = func(requests []fixtures.Request) load.Schedule { return a.Schedule(len(requests)) }
	}
	if spec.Replay > 0 {
		config.Arrivals, config.Replay = arrivals{replay: true, speed: spec.Replay}.schedule(), true
	}
	if spec.Results != "" {
		config.Artifacts = mustCreate(tb, spec.Results).Cell(spec.Row, blockSize, workload.Name)
	}
	return run.NewCell(server, config.For(rows[0])), server
}

// testModel is the smallest model that spec fits, and its sizes.
func testModel(tb testing.TB, spec TestCell) (string, fixtures.Params) {
	tb.Helper()
	blockSize := settings.BlockSize
	params := fixtures.Params{
		Requests: cmp.Or(spec.Requests, 4), BlockSize: blockSize,
		InputLen: cmp.Or(spec.InputLen, 3*blockSize+blockSize/2), OutputLen: cmp.Or(spec.OutputLen, 32),
		Seed: settings.Seed, Nonce: tb.Name(), LengthScale: spec.LengthScale, Turns: spec.Turns, RangeRatio: spec.RangeRatio,
	}
	workload, err := fixtures.ByName(cmp.Or(spec.Workload, "unique"))
	require.NoError(tb, err)
	if workload.Format != "" && spec.InputLen == 0 {
		params.InputLen += 160 // the question and what the chat template adds
	}
	name := cmp.Or(spec.Model, "nano")
	if params.InputLen+params.OutputLen > smallContext {
		name = "mini"
	}
	model, err := recipe.MiniModel(name)
	require.NoError(tb, err)
	params.Context, params.Vocab = model.Context, model.Vocab
	return name, params
}

// tiersFor sizes a store for the working set of a plan.
func tiersFor(tb testing.TB, spec TestCell, workload fixtures.Workload, params fixtures.Params, facts fixtures.ModelFacts) *row.Tiers {
	tb.Helper()
	plan, err := workload.Plan(params)
	require.NoError(tb, err)
	set, err := fixtures.CountBlocks(plan, params.BlockSize)
	require.NoError(tb, err)
	slot, err := facts.SlotBytes(params.BlockSize, 1)
	require.NoError(tb, err)
	tiers := &row.Tiers{L1Bytes: int64(spec.L1Share*float64(int64(set.Blocks)*slot)) + int64(spec.L1Units)*slot}
	if !spec.NoL2 {
		tiers.L2Dir = tb.TempDir()
	}
	return tiers
}

// EachCell runs body for every selected row and workload as a sub-test with a
// cell of its own.
func EachCell(t *testing.T, body func(t *testing.T, cell *run.Cell, server *row.Server)) {
	for _, r := range current.selection.rows {
		t.Run("backend="+r.Name(), func(t *testing.T) {
			for _, w := range current.selection.workloads {
				if !applies(r, w) {
					continue
				}
				t.Run("workload="+w.Name, func(t *testing.T) {
					start := StartCell
					if !current.inProcess() {
						start = func(tb testing.TB, spec TestCell) (*run.Cell, *row.Server) { return LiveCell(tb, r, spec) }
					}
					cell, server := start(t, TestCell{Row: r.Name(), Workload: w.Name})
					body(t, cell, server)
				})
			}
		})
	}
}

func mustCreate(tb testing.TB, results string) *artifact.Run {
	tb.Helper()
	created, err := artifact.Create(results, time.Now())
	require.NoError(tb, err)
	return created
}

// Missing says that something which the test needs is not here, and how to get
// it: a skip, which -require turns into a failure.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if settings.Require {
		tb.Fatalf("-require: "+format, args...)
	}
	tb.Skipf(format, args...)
}
