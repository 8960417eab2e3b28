package verdict

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func compareOne(cold, warm row.Timeline) Comparison {
	return Compare([]row.Timeline{cold}, []row.Timeline{warm})
}

func changed(t row.Timeline, at int) row.Timeline {
	tokens := append([]int32(nil), t.Tokens...)
	tokens[at]++
	t.Tokens = tokens
	return t
}

func shifted(t row.Timeline, at int, by float64) row.Timeline {
	logprobs := append([]row.TokenLogprob(nil), t.Logprobs...)
	logprobs[at].Logprob += by
	t.Logprobs = logprobs
	return t
}

func TestJudgeExact(t *testing.T) {
	cold := withLogprobs(answer("r-7", count(8, 64)...), 0.3)
	nan := shifted(cold, 5, math.NaN())
	twoBad := Compare(
		[]row.Timeline{answer("a", count(8, 64)...), answer("b", count(8, 64)...), answer("c", count(8, 64)...)},
		[]row.Timeline{changed(answer("a", count(8, 64)...), 3), answer("b", count(8, 64)...), changed(answer("c", count(8, 64)...), 60)})
	for _, c := range []struct {
		name     string
		in       Comparison
		options  Options
		verdict  Verdict
		findings []row.Code
	}{
		{"equal", compareOne(cold, cold), Options{MinTokens: 32}, Identical, nil},
		{"one bit of a logprob", compareOne(cold, shifted(cold, 63, 1e-15)), Options{MinTokens: 32}, Corrupt, []row.Code{row.LogprobShift}},
		{"a token", compareOne(cold, changed(cold, 63)), Options{MinTokens: 32}, Corrupt, []row.Code{row.OutputDiffers}},
		{"a token and logprobs before", compareOne(cold, shifted(changed(cold, 63), 1, 1)), Options{MinTokens: 32}, Corrupt, []row.Code{row.OutputDiffers}},
		{"shorter", compareOne(cold, answer("r-7", count(8, 63)...)), Options{MinTokens: 32}, Corrupt, []row.Code{row.OutputDiffers}},
		{"a difference outweighs too few tokens", compareOne(answer("r", 1, 2), answer("r", 1, 3)), Options{MinTokens: 32}, Corrupt, []row.Code{row.OutputDiffers}},
		{"null in warm", compareOne(cold, nan), Options{MinTokens: 32}, Corrupt, []row.Code{row.LogprobNull}},
		{"null in cold", compareOne(nan, cold), Options{MinTokens: 32}, Corrupt, []row.Code{row.LogprobNull}},
		{"null in both", compareOne(nan, nan), Options{MinTokens: 32}, Corrupt, []row.Code{row.LogprobNull}},
		{"31 tokens", compareOne(answer("r", count(8, 31)...), answer("r", count(8, 31)...)), Options{MinTokens: 32}, Insufficient, nil},
		{"32 tokens", compareOne(answer("r", count(8, 32)...), answer("r", count(8, 32)...)), Options{MinTokens: 32}, Identical, nil},
		{"no tokens at all", compareOne(answer("r"), answer("r")), Options{}, Insufficient, nil},
		{"logprobs wanted, none came", compareOne(answer("r", count(8, 64)...), answer("r", count(8, 64)...)), Options{MinTokens: 32, Logprobs: true}, Insufficient, nil},
		{"logprobs wanted and there", compareOne(cold, cold), Options{MinTokens: 32, Logprobs: true}, Identical, nil},
		{"failed", compareOne(cold, failed("r", row.CutOff)), Options{MinTokens: 32}, Insufficient, nil},
		{"missing", Compare([]row.Timeline{cold, cold}, []row.Timeline{cold}), Options{MinTokens: 32}, Insufficient, nil},
		{"no requests", Compare(nil, nil), Options{MinTokens: 32}, Undecided, nil},
		{"each corrupt request", twoBad, Options{MinTokens: 32}, Corrupt, []row.Code{row.OutputDiffers, row.OutputDiffers}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Exact = true
			got, findings := Judge(c.in, c.options)
			require.Equal(t, c.verdict, got)
			require.Equal(t, c.findings, codes(findings))
			for _, f := range findings {
				require.Equal(t, "warm", f.Phase)
				require.NotEmpty(t, f.Request)
				require.NotEmpty(t, f.Evidence)
				require.NotEmpty(t, f.Advice)
			}
		})
	}
	_, findings := Judge(twoBad, Options{Exact: true, Phase: "proof"})
	require.Equal(t, "proof", findings[0].Phase)
	require.Equal(t, []string{"a", "c"}, []string{findings[0].Request, findings[1].Request})
	require.Contains(t, findings[1].Evidence, "from token 60 on (64 and 64 tokens)")
	_, findings = Judge(compareOne(cold, shifted(cold, 9, -0.25)), Options{Exact: true})
	require.Contains(t, findings[0].Evidence, "1 of 64 positions, first at token 9, by at most 0.25")
	_, findings = Judge(compareOne(text("c", "abc", 2), text("w", "abd", 2)), Options{Exact: true})
	require.Contains(t, findings[0].Evidence, "from character 2 on (3 and 3 characters); texts were compared")
}

// TestJudgeWithControl takes a stack whose bits depend on the batch.
func TestJudgeWithControl(t *testing.T) {
	tie := withLogprobs(answer("r", count(8, 64)...), 0)
	clear := withLogprobs(answer("r", count(8, 64)...), 0.3)
	unknown := answer("r", count(8, 64)...)
	control := func(cold, again row.Timeline) []Comparison {
		return []Comparison{compareOne(cold, again)}
	}
	for _, c := range []struct {
		name     string
		cold     row.Timeline
		warm     row.Timeline
		controls []Comparison
		verdict  Verdict
	}{
		{"equal, no control needed", clear, clear, nil, Identical},
		{"differs, no control", tie, changed(tie, 8), nil, Undecided},
		{"control differs at the same tie", tie, changed(tie, 8), control(tie, changed(tie, 8)), NumericTie},
		{"control differs at the same place, at the same gap", clear, changed(clear, 8), control(clear, changed(clear, 8)), NumericTie},
		{"gap wider than at the control's", clear, changed(clear, 8), control(tie, changed(tie, 8)), Corrupt},
		{"control differs at the same place, gap unknown", unknown, changed(unknown, 8), control(unknown, changed(unknown, 8)), Undecided},
		{"control differs elsewhere", tie, changed(tie, 8), control(tie, changed(tie, 9)), Undecided},
		{"control is clean", clear, changed(clear, 8), control(clear, clear), Corrupt},
		{"control is clean, gap unknown", unknown, changed(unknown, 8), control(unknown, unknown), Corrupt},
		{"control is clean, but it was a tie", tie, changed(tie, 8), control(tie, tie), Undecided},
		{"control failed", clear, changed(clear, 8), control(clear, failed("r", row.Stall)), Undecided},
		{"logprobs moved, no control", clear, shifted(clear, 3, 0.01), nil, Undecided},
		{"logprobs moved no more than in the control", clear, shifted(clear, 3, 0.01), control(clear, shifted(clear, 30, 0.02)), Identical},
		{"logprobs moved a little more than in the control", clear, shifted(clear, 3, 0.03), control(clear, shifted(clear, 30, 0.02)), Identical},
		{"logprobs moved beyond the control's", clear, shifted(clear, 3, 0.09), control(clear, shifted(clear, 30, 0.02)), Corrupt},
		{"logprobs moved by a rounding, the control's did not", clear, shifted(clear, 3, 0.03), control(clear, clear), Undecided},
		{"logprobs moved by more, the control's did not", clear, shifted(clear, 3, 0.2), control(clear, clear), Corrupt},
		{"moved beyond before a tie", tie, shifted(changed(tie, 8), 3, 0.09), control(tie, shifted(changed(tie, 8), 3, 0.02)), Corrupt},
		{"null", clear, shifted(clear, 3, math.NaN()), control(clear, clear), Corrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, findings := Judge(compareOne(c.cold, c.warm), Options{MinTokens: 32, Controls: c.controls})
			require.Equal(t, c.verdict, got)
			require.Equal(t, got == Corrupt, len(findings) > 0)
		})
	}
	t.Run("the worst of several requests", func(t *testing.T) {
		cold := []row.Timeline{tie, clear}
		warm := []row.Timeline{changed(tie, 8), changed(clear, 8)}
		again := Compare(cold, []row.Timeline{changed(tie, 8), clear})
		for i := range warm {
			cold[i].ID, warm[i].ID = "", ""
		}
		got, findings := Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{again}})
		require.Equal(t, Corrupt, got)
		require.Len(t, findings, 1)
	})
}

func TestGrades(t *testing.T) {
	for v, want := range map[Verdict]Grade{
		Identical: Proven, NumericTie: Proven, Undecided: Observed, Insufficient: Observed, Corrupt: Invalid, "": Invalid,
	} {
		require.Equal(t, want, GradeOf(v), v)
		require.Equal(t, want, GradeComparison(v, Comparison{Total: 10, Matches: 8}), v)
	}
	require.Equal(t, Observed, GradeComparison(NumericTie, Comparison{Total: 10, Matches: 7}))
	require.Equal(t, Proven, GradeComparison(Identical, Comparison{Total: 10, Matches: 7}))

	require.Equal(t, Proven, Worst())
	require.Equal(t, Observed, Worst(Proven, Observed, Proven))
	require.Equal(t, Invalid, Worst(Observed, Invalid))
	require.Equal(t, Invalid, Worst(Proven, "unheard of"))

	line := func(name string, o Outcome, required bool) Line {
		return Line{Reading: Reading{Witness: name, Required: required}, Outcome: o}
	}
	for _, c := range []struct {
		lines   []Line
		grade   Grade
		missing []string
	}{
		{[]Line{line("usage", Agrees, true), line("engine", Agrees, true)}, Proven, nil},
		{[]Line{line("usage", Agrees, true), line("bytes", Unknown, false)}, Observed, []string{"bytes"}},
		{[]Line{line("usage", Agrees, true), line("bytes", Unknown, true)}, Invalid, nil},
		{[]Line{line("usage", Disagrees, true), line("bytes", Unknown, false)}, Invalid, []string{"bytes"}},
		{[]Line{line("usage", Agrees, true), line("bytes", LoadShort, false)}, Invalid, nil},
	} {
		grade, missing := GradeWitnesses(c.lines)
		require.Equal(t, c.grade, grade)
		require.Equal(t, c.missing, missing)
	}
}

func codes(findings []row.Finding) []row.Code {
	var codes []row.Code
	for _, f := range findings {
		codes = append(codes, f.Code)
	}
	return codes
}
