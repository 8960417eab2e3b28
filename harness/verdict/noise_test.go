package verdict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// TestUnsettledNoise: where most answers of the controls did not move, one that
// moved by a rounding is no fault and no proof either, many are a fault, and a
// large shift is one alone.
func TestUnsettledNoise(t *testing.T) {
	clear := withLogprobs(answer("", count(8, 64)...), 0.3)
	tie := withLogprobs(answer("", count(8, 64)...), 0.03)
	pass := func(moved int, as row.Timeline) []row.Timeline {
		answers := make([]row.Timeline, 12)
		for i := range answers {
			answers[i] = clear
			if i < moved {
				answers[i] = as
			}
		}
		return answers
	}
	cold := pass(0, clear)
	still, one := Compare(cold, pass(0, clear)), Compare(cold, pass(1, shifted(clear, 60, 0.01)))
	for _, c := range []struct {
		name     string
		warm     []row.Timeline
		controls []Comparison
		want     Verdict
		code     []row.Code
	}{
		{"nothing moved", cold, []Comparison{still, still}, Identical, nil},
		{"one by a rounding", pass(1, shifted(clear, 62, 0.03)), []Comparison{still, still}, Undecided, nil},
		{"one by as much as in a control", pass(1, shifted(clear, 62, 0.03)), []Comparison{one, still}, Identical, nil},
		{"one by more than in a control", pass(1, shifted(clear, 62, 0.05)), []Comparison{one, still}, Undecided, nil},
		{"one by much", pass(1, shifted(clear, 62, 0.2)), []Comparison{one, still}, Corrupt, []row.Code{row.LogprobShift}},
		{"many by a rounding", pass(6, shifted(clear, 62, 0.03)), []Comparison{still, still}, Corrupt, []row.Code{row.LogprobShift}},
		{"many by a rounding, as in one control", pass(6, shifted(clear, 62, 0.05)), []Comparison{Compare(cold, pass(4, shifted(clear, 60, 0.01))), still}, Undecided, nil},
		{"one parts where there is no tie, a rounding after it moved", pass(1, shifted(changed(clear, 40), 3, 0.03)), []Comparison{still, still}, Corrupt, []row.Code{row.OutputDiffers}},
		{"one parts where there is no tie", pass(1, changed(clear, 40)), []Comparison{one, still}, Corrupt, []row.Code{row.OutputDiffers}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, findings := Judge(Compare(cold, c.warm), Options{MinTokens: 32, Logprobs: true, Controls: c.controls, Hits: true})
			require.Equal(t, c.want, got, "%v", findings)
			require.Equal(t, c.code, codes(findings))
		})
	}
	got, findings := Judge(Compare(cold, pass(12, shifted(clear, 0, 0.03))), Options{MinTokens: 32, Logprobs: true, Controls: []Comparison{still}})
	require.Equal(t, Undecided, got, "no control had hits, and a hit may add up in another order: %v", findings)
	near := CompareWithin(cold, pass(12, shifted(clear, 0, 0.03)), 0.05)
	got, _ = Judge(near, Options{MinTokens: 32, Logprobs: true, Controls: []Comparison{still}, Hits: true})
	require.Equal(t, Identical, got, "that is no movement")
	cold[0] = tie
	parts := append([]row.Timeline{changed(tie, 40)}, cold[1:]...)
	got, findings = Judge(Compare(cold, parts), Options{MinTokens: 32, Logprobs: true, Controls: []Comparison{Compare(cold, cold)}})
	require.Equal(t, Undecided, got, "a tie as close as a rounding, with controls that have none: %v", findings)
}

// TestNoisierControlExcuses: what recomputing does as often is no fault of a
// cache, also where the engine's own hits do not.
func TestNoisierControlExcuses(t *testing.T) {
	tie := withLogprobs(answer("", count(8, 64)...), 0)
	cold := make([]row.Timeline, 10)
	recomputed, warm := make([]row.Timeline, 10), make([]row.Timeline, 10)
	for i := range cold {
		cold[i], recomputed[i], warm[i] = tie, tie, tie
		if i < 5 {
			recomputed[i] = changed(tie, 20)
		} else {
			warm[i] = changed(tie, 30)
		}
	}
	hit := Compare(cold, cold)
	v, findings := Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{hit}})
	require.Equal(t, Corrupt, v)
	require.Equal(t, []row.Code{row.OutputDiffers}, codes(findings))
	v, findings = Judge(Compare(cold, warm), Options{MinTokens: 32, Controls: []Comparison{Compare(cold, recomputed), hit}})
	require.Equal(t, NumericTie, v)
	require.Empty(t, findings)
}

// TestExactEvidence: where no control is needed, what the logprobs showed before
// the outputs part is told all the same.
func TestExactEvidence(t *testing.T) {
	clear := withLogprobs(answer("r", count(8, 64)...), 0.3)
	v, findings := Judge(compareOne(clear, shifted(changed(clear, 40), 3, 0.25)), Options{MinTokens: 32, Exact: true})
	require.Equal(t, Corrupt, v)
	require.Contains(t, findings[0].Evidence, "logprobs differ from token 3 on, by at most 0.25 before")
}
