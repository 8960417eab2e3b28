package harness

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// EachHitCase runs body for every selected row and every shape of hit that the
// row can have, as sub-tests that can be run alone. A row's cases share a
// server, apart from those that need a store of another size. What a row's
// features rule out is listed.
func EachHitCase(t *testing.T, body func(t *testing.T, cell *run.Cell, c fixtures.HitCase)) {
	for _, r := range hitRows(t) {
		t.Run("backend="+r.Name(), func(t *testing.T) {
			if !current.inProcess() {
				hitCases(t, r, nil, func(tb testing.TB, spec TestCell) (*run.Cell, *row.Server) { return LiveCell(tb, r, spec) }, body)
				return
			}
			if realLMCache() && r.Name() == "lmcache" {
				start := func(tb testing.TB, spec TestCell) (*run.Cell, *row.Server) {
					spec.Real = true
					return StartCell(tb, spec)
				}
				hitCases(t, r, nil, start, body)
				return
			}
			t.Parallel()
			HitCases(t, r.Name(), nil, body)
		})
	}
}

// hitRows are the rows that are selected and, where that is all, the engine's
// own cache too: it is no row of a comparison, but a cache that can be wrong.
func hitRows(t *testing.T) []row.Row {
	t.Helper()
	rows := current.selection.rows
	if settings.Backend != "all" || !current.inProcess() {
		return rows
	}
	own, _, err := recipe.Select("engine-cache", recipe.Mini{Model: "nano"})
	require.NoError(t, err)
	return append(slices.Clone(rows), own...)
}

// HitCases is EachHitCase for one row, whose stack has faults.
func HitCases(t *testing.T, name string, faults []fault.Fault, body func(t *testing.T, cell *run.Cell, c fixtures.HitCase)) {
	t.Helper()
	rows, _, err := recipe.Select(name, recipe.Mini{Model: "nano"})
	require.NoError(t, err)
	hitCases(t, rows[0], faults, StartCell, body)
}

func hitCases(t *testing.T, r row.Row, faults []fault.Fault, start func(testing.TB, TestCell) (*run.Cell, *row.Server), body func(t *testing.T, cell *run.Cell, c fixtures.HitCase)) {
	t.Helper()
	params := hitCaseParams(t)
	cases, err := fixtures.HitCases(params, params.BlockSize)
	require.NoError(t, err)
	rowTest := t
	cells := make(map[fixtures.Need]*run.Cell)
	var inapplicable []string
	for _, c := range cases {
		if !hitCaseApplies(r, c) {
			inapplicable = append(inapplicable, c.Name)
			continue
		}
		var need fixtures.Need // that decides the store
		for _, n := range c.Needs {
			if n == fixtures.NeedEviction || n == fixtures.NeedL2 || n == fixtures.NeedBoth || n == fixtures.NeedRestart {
				need = n
			}
		}
		t.Run(c.Name, func(t *testing.T) {
			if cells[need] == nil {
				spec := TestCell{
					Row: r.Name(), Faults: faults, InputLen: params.InputLen, OutputLen: params.OutputLen,
					Concurrency: fixtures.HitCaseConcurrency,
				}
				switch need {
				case "":
				case fixtures.NeedBoth:
					spec.EngineCache = true
				default:
					spec.L1Units, spec.NoL2 = fixtures.HitCaseUnits, need == fixtures.NeedEviction
				}
				cells[need], _ = start(rowTest, spec) // it lives as long as the row's test
			}
			if lacks := cells[need].Lacks(c); lacks != "" {
				Missing(t, "%s.", lacks)
			}
			body(t, cells[need], c)
		})
	}
	require.Less(t, len(inapplicable), len(cases), "a row on which nothing can be asked shows nothing")
	if len(inapplicable) > 0 {
		t.Logf("not applicable to %s by its features: %v", r.Name(), inapplicable)
	}
}

// hitCaseParams are the sizes of the cases under -blocksize.
func hitCaseParams(t *testing.T) fixtures.Params {
	t.Helper()
	_, params := testModel(t, TestCell{InputLen: 5*settings.BlockSize + 1})
	return params
}

// hitCaseApplies says whether a row can have a shape of hit at all.
func hitCaseApplies(r row.Row, c fixtures.HitCase) bool {
	documents := c.Waves[0].Requests[0].Parts != nil
	switch {
	case r.Supports(row.Unshared) && c.Shares():
		return false
	case c.Name == "length=1" && r.Name() == "engine-files" && settings.Engine == "vllm":
		return false // vLLM 0.32.0's file connector finds -B tokens of it the second time, and the engine dies
	case c.NeedsReference() && r.Supports(row.Reuse) && !r.Supports(row.SkipReuse) && !r.Supports(row.Reset) && !r.Supports(row.Salts):
		return false // it always answers from its cache
	case r.Supports(row.Documents) && !documents:
		return false // it reuses whole documents and nothing else
	case slices.Contains(c.Needs, fixtures.NeedSalts):
		return r.Supports(row.Salts)
	case slices.Contains(c.Needs, fixtures.NeedStopIDs):
		return r.Supports(row.StopIDs)
	case slices.Contains(c.Needs, fixtures.NeedWeights):
		return r.Supports(row.Reset) && engineIsMini(settings.Stack)
	case slices.Contains(c.Needs, fixtures.NeedRestart):
		return r.Supports(row.Restarts)
	case slices.Contains(c.Needs, fixtures.NeedBoth):
		return r.Supports(row.Tiered) && r.Name() == "lmcache" // real engines are started with one cache alone
	case slices.Contains(c.Needs, fixtures.NeedEviction), slices.Contains(c.Needs, fixtures.NeedL2):
		return r.Supports(row.Tiered) && !realLMCache() // whose sizes are not set
	}
	return true
}

// realLMCache says that the miniature engine has LMCache's own server behind it.
func realLMCache() bool { return current.selection.stack.LMCache == recipe.Process }
