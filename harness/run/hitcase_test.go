package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// hitCase runs one case on the fake.
func hitCase(t *testing.T, f *fake, name string, edit ...func(*run.Config)) ([]row.Finding, error) {
	t.Helper()
	params := fixtures.Params{Requests: 1, OutputLen: 32, BlockSize: block, Context: 1024, Vocab: 1024, Seed: 7}
	cases, err := fixtures.HitCases(params, block)
	require.NoError(t, err)
	i := slices.Index(fixtures.HitCaseNames(cases), name)
	require.GreaterOrEqual(t, i, 0)
	cell := f.cell(t, append([]func(*run.Config){func(c *run.Config) { c.Params = params }}, edit...)...)
	return cell.HitCase(t.Context(), cases[i])
}

func TestHitCasesOnAHealthyServer(t *testing.T) {
	for _, name := range []string{"length=1", "length=B", "length=2B+1", "overlap=inside-a-block", "overlap=extension", "documents=recomposed", "stop=first-token"} {
		t.Run(name, func(t *testing.T) {
			findings, err := hitCase(t, newFake(), name)
			require.NoError(t, err)
			require.Empty(t, findings)
		})
	}
}

func TestHitCasesShowWhatIsWrong(t *testing.T) {
	in := func(phase string, change func(*row.Timeline)) func(row.Request, *row.Timeline) {
		return func(r row.Request, tl *row.Timeline) {
			if strings.Contains(r.ID, "-"+phase+"-") {
				change(tl)
			}
		}
	}
	for name, test := range map[string]struct {
		hitCase string
		answer  func(row.Request, *row.Timeline)
		want    row.Code
	}{
		"a hit answers otherwise":        {"length=B+1", in("warm", func(tl *row.Timeline) { tl.Tokens[3]++ }), row.OutputDiffers},
		"only the third time":            {"length=B+1", in("again", func(tl *row.Timeline) { tl.Tokens[3]++ }), row.OutputDiffers},
		"logprobs alone":                 {"length=B+1", in("warm", func(tl *row.Timeline) { tl.Logprobs[9].Logprob -= 1e-9 }), row.LogprobShift},
		"the first one hits":             {"length=B+1", in("cold", func(tl *row.Timeline) { *tl.Usage.CachedTokens = block }), row.ColdNotCold},
		"one token less":                 {"length=B+1", in("again", func(tl *row.Timeline) { *tl.Usage.CachedTokens-- }), row.HitBelowOracle},
		"one token more":                 {"length=B", in("warm", func(tl *row.Timeline) { *tl.Usage.CachedTokens++ }), row.HitAboveOracle},
		"an overlap, against its answer": {"overlap=whole-chunks", in("reference", func(tl *row.Timeline) { tl.Tokens[0]++ }), row.OutputDiffers},
		"a stop that is not honoured":    {"stop=token", func(row.Request, *row.Timeline) {}, row.OutputDiffers},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answer = test.answer
			findings, err := hitCase(t, f, test.hitCase)
			require.NoError(t, err)
			require.NotEmpty(t, findings)
			require.Equal(t, test.want, findings[0].Code, "%v", findings)
		})
	}
}

// TestHitCaseWhoseReferenceStays: where an answer without the cache is kept in
// it, the next one to ask must hit.
func TestHitCaseWhoseReferenceStays(t *testing.T) {
	skips := func(c *run.Config) { c.Reset, c.SkipReuse = false, true }
	for _, told := range []bool{true, false} {
		f := newFake()
		f.skipStores = told
		findings, err := hitCase(t, f, "together=different", skips)
		require.NoError(t, err)
		if told {
			require.Empty(t, findings)
			continue
		}
		require.NotEmpty(t, findings)
		require.Equal(t, row.ColdNotCold, findings[0].Code, "%v", findings)
	}
}

// TestHitCaseOfARestart: what is said to survive must hit, and nothing else may.
func TestHitCaseOfARestart(t *testing.T) {
	for _, c := range []struct {
		said, keeps bool
		want        []row.Code
	}{
		{true, true, nil},
		{false, false, nil},
		{true, false, []row.Code{row.HitBelowOracle}},
		{false, true, []row.Code{row.ColdNotCold, row.HitAboveOracle}},
	} {
		f := newFake()
		f.reopen = &row.CacheRestart{Keeps: c.said, Do: func(context.Context) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.counter.Value = 0; !c.keeps {
				clear(f.stored)
			}
			return nil
		}}
		findings, err := hitCase(t, f, "restart=reread")
		require.NoError(t, err)
		require.Equal(t, len(c.want) == 0, len(findings) == 0, "%+v: %v", c, findings)
		if len(findings) > 0 {
			require.Contains(t, c.want, findings[0].Code, "%+v: %v", c, findings)
			require.Equal(t, "after-restart", findings[0].Phase)
		}
	}
	_, err := hitCase(t, newFake(), "restart=reread")
	require.ErrorContains(t, err, "row fake has nothing that could be restarted")
}

// TestHitCaseWithoutAWayAround: a row that can neither empty nor skip its cache
// cannot compute what an overlap is held to, and says so.
func TestHitCaseWithoutAWayAround(t *testing.T) {
	keeps := func(c *run.Config) { c.Reset = false }
	_, err := hitCase(t, newFake(), "overlap=whole-chunks", keeps)
	require.ErrorContains(t, err, "can neither skip its cache, nor empty it")
	findings, err := hitCase(t, newFake(), "length=2B", keeps)
	require.NoError(t, err)
	require.Empty(t, findings)
}

// TestHitCaseWithWavesOfOtherSizes: what is left of a finding does not depend on
// how many requests the waves before it had.
func TestHitCaseWithWavesOfOtherSizes(t *testing.T) {
	f := newFake()
	f.answer = func(r row.Request, tl *row.Timeline) {
		if strings.Contains(r.ID, "-warm-") {
			tl.Tokens[0]++
		}
	}
	request := func(index int) fixtures.Request {
		prompt := make([]int32, 2*block+1)
		prompt[0] = int32(index)
		return fixtures.Request{Index: index, Prompt: prompt, Output: 8}
	}
	findings, err := f.cell(t).HitCase(t.Context(), fixtures.HitCase{Name: "sizes", Waves: []fixtures.Wave{
		{Name: "cold", Requests: []fixtures.Request{request(0), request(1)}},
		{Name: "warm", Requests: []fixtures.Request{request(1)}},
	}})
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, row.OutputDiffers, findings[0].Code)
}
