package run_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// TestStaleCase is a recorded case: a prompt is primed, the weights change, and
// the cache serves what the old ones computed. Beside it what is right, and the
// same fault where tokens do not show it or usage does not.
func TestStaleCase(t *testing.T) {
	text, err := os.ReadFile("testdata/events-07-stale-after-weight-update.json")
	require.NoError(t, err)
	var recorded struct {
		Input struct {
			Cached int  `json:"cached_tokens_last"`
			Equal  bool `json:"text_equals_fresh_engine"`
		}
		Expect struct{ Verdict, Reason string }
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Equal(t, "stale_cache", recorded.Expect.Reason)

	for name, test := range map[string]struct {
		hits, equal bool // after the weights changed
		want        []row.Code
	}{
		"recorded":               {recorded.Input.Cached > 0, recorded.Input.Equal, []row.Code{row.StaleCache}},
		"emptied":                {false, true, nil},
		"hits, and equal so far": {true, true, []row.Code{row.StaleCache}},
		"usage says nothing hit": {false, false, []row.Code{row.StaleCache}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answer = func(r row.Request, tl *row.Timeline) {
				if !strings.Contains(r.ID, "-updated-") {
					return
				}
				if test.hits {
					*tl.Usage.CachedTokens = 32
				}
				if !test.equal {
					tl.Tokens[0]++
				}
			}
			server := f.server()
			server.Witnesses = nil // the fake's counter is of what it really did
			server.Weights = func(context.Context) error { clear(f.stored); return nil }
			params := fixtures.Params{Requests: 1, OutputLen: 32, BlockSize: block, Context: 1024, Vocab: 1024, Seed: 7}
			workload, err := fixtures.ByName("unique")
			require.NoError(t, err)
			cases, err := fixtures.HitCases(params, block)
			require.NoError(t, err)
			for _, c := range cases {
				if c.Name != "weights=changed" {
					continue
				}
				findings, err := run.NewCell(server, run.Config{
					Workload: workload, Params: params, Concurrency: 1, Reuse: true, Reset: true, Exact: true, Logprobs: true,
				}).HitCase(t.Context(), c)
				require.NoError(t, err)
				require.Equal(t, test.want, codes(findings), "%v", findings)
			}
		})
	}
}
