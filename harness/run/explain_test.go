package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

func TestExplain(t *testing.T) {
	require.Empty(t, run.Explain(run.Result{}, "anywhere"))

	f := newFake()
	f.wrong = 16
	result, findings, err := f.cell(t).Cycle(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	text := run.Explain(result, "some/where/repro")
	for _, want := range []string{
		"invalid: ", "first found: witness-disagrees, phase cold: ", "expected: 0 of 120 prompt tokens from the cache in the cold pass\n",
		"seen by the witnesses of the cold pass:\n    witness  hit tokens", "\n    engine   48 ",
		"likely: a counter with another denominator", "try: ", "again: go run ./cmd/kvproof replay some/where/repro",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, run.Explain(result, ""), "again:")

	agree := newFake()
	agree.answer = func(r row.Request, tl *row.Timeline) {
		if strings.Contains(r.ID, "-warm-") {
			tl.Tokens[0]++
		}
	}
	result, _, err = agree.cell(t).Cycle(t.Context())
	require.NoError(t, err)
	text = run.Explain(result, "")
	require.Contains(t, text, "invalid: 3 × output-differs\n")
	require.Contains(t, text, "seen: hit tokens by usage 96, engine 96: all agree\n", "no table where there is nothing to compare")
}
