package verdict

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

func TestExactTests(t *testing.T) {
	for _, c := range []struct {
		here, there int
		p           float64
	}{{0, 0, 1}, {5, 0, 1. / 32}, {0, 3, 1}, {3, 1, 5. / 16}, {1, 1, 3. / 4}, {4, 0, 1. / 16}} {
		require.InDelta(t, c.p, signTest(c.here, c.there), 1e-12, fmt.Sprint(c))
	}
	for _, c := range []struct {
		a, n, c, m int
		p          float64
	}{
		{3, 3, 0, 3, 1. / 20},           // one way in 6 over 3
		{2, 2, 0, 3, 1. / 10},           // one way in 5 over 2
		{1, 3, 1, 3, 12. / 15},          // 1 - (3 over 2)/(6 over 2)
		{0, 4, 2, 4, 1},                 //
		{4, 8, 0, 8, 70. / 1820},        // (8 over 4)/(16 over 4)
		{1, 1, 9, 9, 1},                 // all are events
		{0, 0, 0, 0, 1},                 // no data
		{8, 8, 0, 8, 1. / 12870},        // (16 over 8)
		{5, 10, 5, 10, 1 - 0.328140959}, // P(k >= 5) of a symmetric one
	} {
		require.InDelta(t, c.p, fisherTest(c.a, c.n, c.c, c.m), 1e-6, fmt.Sprint(c))
	}
}

// A noisy engine: logprobs move by up to scale, and a choice whose gap is
// smaller than the movement may turn, after which nothing is the same.
type noisy struct {
	random *rand.Rand
	scale  float64
}

func (n noisy) answer(id string, gaps []float64) row.Timeline {
	t := row.Timeline{ID: id, Status: row.OK, HTTP: 200}
	turned := false
	for i, gap := range gaps {
		best, second := -0.5+n.move(), -0.5-gap+n.move()
		if i == 0 { // comes of the prompt alone
			best, second = -0.5, -0.5-gap
		}
		token := int32(8 + i)
		if second > best {
			best, second, turned = second, best, true
			token++
		}
		if turned {
			token += 100
		}
		t.Tokens = append(t.Tokens, token)
		t.Logprobs = append(t.Logprobs, row.TokenLogprob{Logprob: best, Top: []float64{best, second}})
	}
	return t
}

func (n noisy) move() float64 { return n.scale * (2*n.random.Float64() - 1) }

// pass answers prompts whose gaps are fixed by the prompt.
func (n noisy) pass(prompts int) (timelines []row.Timeline) {
	for i := range prompts {
		gaps := rand.New(rand.NewPCG(uint64(i), 3))
		g := make([]float64, 64)
		for j := range g {
			g[j] = 3 * gaps.Float64()
			if gaps.IntN(90) == 0 {
				g[j] = 0.01 * gaps.Float64()
			}
		}
		timelines = append(timelines, n.answer(fmt.Sprint("r-", i), g))
	}
	return timelines
}

// TestNoiseIsNoFault: passes of a noisy engine differ, and are hardly ever
// called corrupt; with a fault under the same noise they always are.
func TestNoiseIsNoFault(t *testing.T) {
	const runs, prompts = 400, 8
	alarms, ties := 0, 0
	for run := range runs {
		n := noisy{random: rand.New(rand.NewPCG(uint64(run), 1)), scale: 0.02}
		cold, warm, again := n.pass(prompts), n.pass(prompts), n.pass(prompts)
		control := Compare(cold, again)
		options := Options{MinTokens: 32, Logprobs: true, Controls: []Comparison{control}}

		v, findings := Judge(Compare(cold, warm), options)
		require.Equal(t, v == Corrupt, len(findings) > 0 && findings[0].Code != row.TiedTooOften, "%s %v", v, findings)
		switch v {
		case Corrupt:
			alarms++
		case NumericTie:
			ties++
		}

		damaged := n.pass(prompts)
		for i := range damaged[3].Logprobs {
			damaged[3].Logprobs[i].Logprob -= 0.3
			damaged[3].Logprobs[i].Top = []float64{damaged[3].Logprobs[i].Logprob, -2}
		}
		v, _ = Judge(Compare(cold, damaged), options)
		require.Equal(t, Corrupt, v, "one damaged request in run %d", run)
	}
	require.Greater(t, ties, runs/4, "there was nothing to tell apart")
	require.LessOrEqual(t, alarms, runs/20, "alarms on a healthy engine")
}

func TestManyTiesAreMoreThanTies(t *testing.T) {
	tie := withLogprobs(answer("", count(8, 64)...), 0)
	cold := []row.Timeline{tie, tie, tie, tie, tie, tie, tie, tie, tie, tie}
	warm := append([]row.Timeline(nil), cold...)
	control := Compare(cold, cold)
	for i := range 5 {
		warm[i] = changed(tie, 8+i)
		v, findings := Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{control}})
		if i < 4 {
			require.Equal(t, NumericTie, v, "%d ties can be chance", i+1)
			require.Empty(t, findings)
			continue
		}
		require.Equal(t, Corrupt, v)
		require.Equal(t, []row.Code{row.OutputDiffers}, codes(findings))
		require.Contains(t, findings[0].Evidence, "5 requests part from their cold answers that do not without a fault, 0 the other way round (of 10; p = 0.031)")
	}

	noisy := Compare(cold, []row.Timeline{warm[0], warm[1], warm[2], warm[3], warm[4], warm[0], tie, tie, tie, tie})
	warm[5] = changed(tie, 20)
	v, findings := Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{noisy}})
	require.Equal(t, NumericTie, v)
	require.Equal(t, []row.Code{row.TiedTooOften}, codes(findings), "6 of 10, with a control that does the same")
}

func TestFirstTokensTogether(t *testing.T) {
	clear := withLogprobs(answer("", count(8, 64)...), 0.3)
	cold := make([]row.Timeline, 8)
	again, warm := make([]row.Timeline, 8), make([]row.Timeline, 8)
	for i := range cold {
		cold[i], warm[i], again[i] = clear, clear, shifted(clear, 30, 0.02)
	}
	control := Compare(cold, again)
	for i := range 4 {
		warm[i] = shifted(clear, 0, 0.001) // far below the noise
		v, findings := Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{control}, Hits: true})
		if i < 3 {
			require.Equal(t, Identical, v)
			continue
		}
		require.Equal(t, Corrupt, v)
		require.Equal(t, []row.Code{row.LogprobShift}, codes(findings))
		require.Contains(t, findings[0].Evidence, "first token moved in 4 of 8 requests, without a fault in 0 of 8")
	}
}

// TestPairsWithoutLogprobs: what nobody saw the logprobs of neither speaks for
// nor against, in the exact test and in the noise.
func TestPairsWithoutLogprobs(t *testing.T) {
	clear := withLogprobs(answer("", count(8, 64)...), 0.3)
	bare := answer("", count(8, 64)...)
	repeat := func(n int, t row.Timeline) (all []row.Timeline) {
		for range n {
			all = append(all, t)
		}
		return all
	}
	options := func(control Comparison) Options {
		return Options{MinTokens: 32, Controls: []Comparison{control}, Hits: true}
	}

	// All but two of the control's pairs have no logprobs: four moved of eight
	// against none of two is nothing to call out; against none of eight it is.
	cold := repeat(8, clear)
	warm := append(repeat(4, shifted(clear, 0, 0.001)), repeat(4, clear)...)
	again := append(repeat(2, shifted(clear, 30, 0.02)), repeat(6, bare)...)
	v, findings := Judge(Compare(cold, warm), options(Compare(cold, again)))
	require.Equal(t, Identical, v)
	require.Empty(t, findings)
	v, _ = Judge(Compare(cold, warm), options(Compare(cold, repeat(8, shifted(clear, 30, 0.02)))))
	require.Equal(t, Corrupt, v)

	// A control without any says nothing about how far logprobs move.
	blind := options(Compare(repeat(8, bare), repeat(8, bare)))
	v, findings = Judge(Compare(cold, warm), blind)
	require.Equal(t, Undecided, v)
	require.Empty(t, findings)
	v, _ = Judge(Compare(cold, append([]row.Timeline{changed(clear, 5)}, cold[1:]...)), blind)
	require.Equal(t, Corrupt, v, "tokens are known all the same: none of the control's parts")
	parting := options(Compare(repeat(8, bare), append([]row.Timeline{changed(bare, 9)}, repeat(7, bare)...)))
	v, _ = Judge(Compare(cold, append([]row.Timeline{changed(clear, 5)}, cold[1:]...)), parting)
	require.Equal(t, Undecided, v, "how close the two tokens may be without a fault is not known")
}

// TestFailedPairsDoNotPart: a request that failed has its own finding, and is
// no answer that differs.
func TestFailedPairsDoNotPart(t *testing.T) {
	same := answer("", count(8, 64)...)
	pass := func(other row.Timeline, n int) Comparison {
		cold, warm := make([]row.Timeline, 20), make([]row.Timeline, 20)
		for i := range cold {
			if cold[i], warm[i] = same, same; i < n {
				warm[i] = other
			}
		}
		return Compare(cold, warm)
	}
	control := pass(same, 0)
	v, findings := Judge(pass(failed("", row.CutOff), 12), Options{MinTokens: 1, Controls: []Comparison{control}, Unpaired: true})
	require.Equal(t, Insufficient, v)
	require.Empty(t, findings)
	v, _ = Judge(pass(changed(same, 20), 12), Options{MinTokens: 1, Controls: []Comparison{control}, Unpaired: true})
	require.Equal(t, Corrupt, v)
}

// TestTimedCycles have token ids alone, and controls about other prompts.
func TestTimedCycles(t *testing.T) {
	same := answer("", count(8, 64)...)
	pass := func(parted int) Comparison {
		cold, warm := make([]row.Timeline, 20), make([]row.Timeline, 20)
		for i := range cold {
			cold[i], warm[i] = same, same
			if i < parted {
				warm[i] = changed(same, 20)
			}
		}
		return Compare(cold, warm)
	}
	for _, c := range []struct {
		parted, control int
		want            Verdict
	}{
		{0, 0, Identical},
		{0, 5, Identical},
		{1, 0, Undecided},
		{5, 5, NumericTie},
		{9, 5, NumericTie},
		{16, 5, Corrupt},
		{9, 0, Corrupt},
	} {
		control := pass(c.control)
		v, findings := Judge(pass(c.parted), Options{MinTokens: 1, Controls: []Comparison{control}, Unpaired: true})
		require.Equal(t, c.want, v, "%v: %v", c, findings)
	}
}

func TestShiftsBesideTheControls(t *testing.T) {
	clear := withLogprobs(answer("r", count(8, 100)...), 0.3)
	warm, again := clear, clear
	for i := range 10 {
		warm, again = shifted(warm, 10*i, 0.03), shifted(again, 10*i+5, 0.01)
	}
	s := CompareShifts(compareOne(clear, changed(warm, 95)), compareOne(clear, again))
	require.Equal(t, 95, s.Positions, "up to where one of them parts")
	require.InDelta(t, 0.03, s.Here.Max, 1e-12)
	require.Zero(t, s.Here.P50)
	require.InDelta(t, 0.03, s.Here.P90, 1e-12, "10 of 95 moved")
	require.InDelta(t, 0.01, s.Control.P99, 1e-12)
	require.InDelta(t, 0.03, s.Excess.Max, 1e-12)
	require.Zero(t, CompareShifts(Comparison{}, Comparison{}).Positions)
}

func TestRefuseControl(t *testing.T) {
	with := func(cached ...int) (timelines []row.Timeline) {
		for _, c := range cached {
			a := answer("r", 8)
			a.Usage = &row.Usage{PromptTokens: 100, CompletionTokens: 1, CachedTokens: &c}
			timelines = append(timelines, a)
		}
		return timelines
	}
	require.Empty(t, RefuseControl("recompute", with(0, 0), fixtures.Interval{}))
	require.Empty(t, RefuseControl("local-hit", with(64, 32), fixtures.Interval{Min: 96, Max: 96}))
	for _, bad := range [][]row.Timeline{with(0, 16), {answer("r", 8)}, {failed("r", row.Stall)}} {
		findings := RefuseControl("recompute", bad, fixtures.Interval{})
		require.Equal(t, []row.Code{row.ControlRefused}, codes(findings))
		require.Equal(t, "recompute", findings[0].Phase)
	}
}
