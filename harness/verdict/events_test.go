package verdict

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// load reads a case into its input and its expectation.
func load(t *testing.T, name string, input, expect any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	require.NoError(t, err)
	file := struct{ Input, Expect any }{input, expect}
	require.NoError(t, json.Unmarshal(text, &file))
}

// TestOutputCases has pairs of outputs with a control arm: corrupt data that
// agrees for 8 tokens, the same cut to one token, and a tie.
func TestOutputCases(t *testing.T) {
	for _, name := range []string{"events-01-late-divergence", "events-02-one-token-compare", "events-03-numeric-tie"} {
		t.Run(name, func(t *testing.T) {
			var input struct {
				Pairs []struct {
					Cold, Warm, Control []int32
					Gap                 *float64 `json:"logprob_gap_at_divergence"`
				}
			}
			var expect struct {
				Rate       float64 `json:"exact_match_rate"`
				Divergence []int   `json:"first_divergence"`
				Verdict    Verdict `json:"verdict"`
			}
			load(t, name, &input, &expect)
			require.NotEmpty(t, input.Pairs)
			var cold, warm, again []row.Timeline
			for i, p := range input.Pairs {
				c := answer(fmt.Sprint("cold-", i), p.Cold...)
				if p.Gap != nil {
					c = withLogprobs(c, *p.Gap)
				}
				cold = append(cold, c)
				warm = append(warm, answer(fmt.Sprint("warm-", i), p.Warm...))
				again = append(again, answer(fmt.Sprint("again-", i), p.Control...))
			}
			comparison, control := Compare(cold, warm), Compare(cold, again)
			rate, ok := comparison.Rate()
			require.True(t, ok)
			require.Equal(t, expect.Rate, rate)
			for i, at := range expect.Divergence {
				require.Equal(t, at, comparison.Pairs[i].Divergence)
			}
			got, _ := Judge(comparison, Options{MinTokens: 32, Controls: []Comparison{control}})
			require.Equal(t, expect.Verdict, got)

			exact, findings := Judge(comparison, Options{MinTokens: 32, Exact: true})
			if rate == 1 {
				require.Equal(t, Insufficient, exact)
				require.Empty(t, findings)
				return
			}
			require.Equal(t, Corrupt, exact, "where bits are exact there are no ties")
			require.Equal(t, []row.Code{row.OutputDiffers}, codes(findings))
		})
	}
}

func TestWarmColdCell(t *testing.T) {
	var input struct {
		Declared string `json:"declared_cache"`
		Requests []struct {
			Prompt int `json:"prompt_tokens"`
			Cached int `json:"cached_tokens"`
		}
	}
	var expect struct {
		Valid bool `json:"cell_valid"`
	}
	load(t, "events-04-warm-cold-cell", &input, &expect)
	require.Len(t, input.Requests, 2)
	sum := 0
	var findings []row.Finding
	for _, r := range input.Requests {
		got := answer("r", 8)
		got.Usage = &row.Usage{PromptTokens: r.Prompt, CompletionTokens: 1, CachedTokens: &r.Cached}
		findings = append(findings, CheckHit(input.Declared, got, fixtures.Interval{}, "floor((P-1)/16)*16")...)
		sum += r.Cached
	}
	require.Equal(t, []row.Code{row.ColdNotCold}, codes(findings), "one request is enough")
	_, findings = Reconcile(input.Declared, []Reading{{Witness: "usage", Law: "floor((P-1)/16)*16", Hits: float64(sum), State: row.Known, Required: true}})
	require.Equal(t, expect.Valid, len(findings) == 0)
	require.Equal(t, []row.Code{row.ColdNotCold}, codes(findings))
}

func TestWitnessCases(t *testing.T) {
	var input struct {
		Expected int      `json:"expected_by_plan"`
		Usage    float64  `json:"usage_cached"`
		Engine   *float64 `json:"engine_hits"`
		Backend  *float64 `json:"backend_hits"`
		Lookup   *float64 `json:"lookup_hit_tokens"`
		Loaded   *float64 `json:"loaded_tokens"`
	}
	type expectation struct {
		Reconciled bool     `json:"reconciled"`
		Disagree   []string `json:"disagree"`
		Reason     string   `json:"reason"`
	}
	for name, want := range map[string][]row.Code{
		"events-08-witness-disagree":      {row.HitBelowOracle, row.WitnessDisagrees},
		"events-09-lookup-hit-load-short": {row.LoadShorterThanLookup, row.HitBelowOracle},
	} {
		t.Run(name, func(t *testing.T) {
			clear := input
			var expect expectation
			load(t, name, &clear, &expect)
			oneLaw, ownLaws := []Reading{}, []Reading{}
			add := func(witness, law string, hits *float64) {
				if hits == nil {
					return
				}
				r := Reading{
					Witness: witness, Law: "one law", Hits: *hits, State: row.Known, Required: true,
					Expected: fixtures.Interval{Min: clear.Expected, Max: clear.Expected},
				}
				oneLaw = append(oneLaw, r)
				r.Law = law
				ownLaws = append(ownLaws, r)
			}
			add("usage", "engine's", &clear.Usage)
			add("engine", "engine's", clear.Engine)
			add("backend", "backend's", clear.Backend)
			add("backend", "backend's", clear.Lookup)
			add("bytes", "bytes", clear.Loaded)
			for _, readings := range [][]Reading{oneLaw, ownLaws} {
				lines, findings := Reconcile("warm", readings)
				require.Equal(t, expect.Disagree, Disagree(lines))
				require.Equal(t, expect.Reconciled, len(findings) == 0)
				require.Equal(t, want, codes(findings)[:len(want)])
			}
		})
	}
}
