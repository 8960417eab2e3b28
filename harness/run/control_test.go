package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

func inexact(controls *run.Controls) func(*run.Config) {
	return func(c *run.Config) { c.Exact, c.Controls, c.ProofRequests = false, controls, 3 }
}

// turn changes an answer from a token on, at a place where the best two tokens
// were gap apart.
func turn(tl *row.Timeline, at int) { tl.Tokens[at]++ }

func TestControlIsSharedByFingerprint(t *testing.T) {
	controls := &run.Controls{}
	f := newFake()
	f.answer = func(r row.Request, tl *row.Timeline) {
		if strings.Contains(r.ID, "-local-hit-0") {
			turn(tl, 40)
		}
	}
	control, findings, err := f.cell(t, inexact(controls)).Control(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, 3, control.Recompute.Matches)
	require.Equal(t, 2, control.LocalHit.Matches)

	asked := func(f *fake) string { return strings.Join(f.log, " ") }
	require.Contains(t, asked(f), "-recompute-0")
	other := newFake()
	_, findings, err = other.cell(t, inexact(controls)).Proof(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.NotContains(t, asked(other), "-recompute-", "the control was there")

	apart := newFake()
	_, findings, err = apart.cell(t, inexact(controls), func(c *run.Config) { c.Params.OutputLen = 99 }).Proof(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Contains(t, asked(apart), "-recompute-", "another plan needs a control of its own")
}

// TestVerdictsByControl: the same difference is a tie where the control has it
// too, corrupt where it does not, and undecided where there is no control.
func TestVerdictsByControl(t *testing.T) {
	differ := func(phases ...string) func(row.Request, *row.Timeline) {
		return func(r row.Request, tl *row.Timeline) {
			for i := range tl.Logprobs {
				tl.Logprobs[i].Top = []float64{-1, -1.25}
			}
			for _, phase := range phases {
				if strings.Contains(r.ID, "-"+phase+"-1") {
					turn(tl, 40)
				}
			}
		}
	}
	for name, test := range map[string]struct {
		answer func(row.Request, *row.Timeline)
		keeps  bool
		want   verdict.Verdict
		code   []row.Code
	}{
		"as the control":       {differ("warm", "recompute"), false, verdict.NumericTie, nil},
		"the control does not": {differ("warm"), false, verdict.Corrupt, []row.Code{row.OutputDiffers}},
		"nothing differs":      {differ(), false, verdict.Identical, nil},
		"no way to recompute":  {differ("warm"), true, verdict.Undecided, nil},
		"the control was a hit": {func(r row.Request, tl *row.Timeline) {
			if strings.Contains(r.ID, "-recompute-1") {
				*tl.Usage.CachedTokens = block
			}
		}, false, "", []row.Code{row.HitAboveOracle, row.WitnessDisagrees, row.ControlRefused}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answer = test.answer
			proof, findings, err := f.cell(t, inexact(nil), func(c *run.Config) { c.Reset = !test.keeps }).Proof(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, proof.Verdict)
			require.Subset(t, codes(findings), test.code)
			require.Equal(t, len(test.code) == 0, len(findings) == 0, "%v", findings)
		})
	}
}
