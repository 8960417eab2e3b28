package verdict

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// answer is a request that ended well with these token ids.
func answer(id string, tokens ...int32) row.Timeline {
	return row.Timeline{ID: id, Status: row.OK, Tokens: tokens, Usage: &row.Usage{PromptTokens: 100, CompletionTokens: len(tokens)}}
}

// count is n different token ids from start on.
func count(start int32, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = start + int32(i)
	}
	return tokens
}

// withLogprobs gives each token the logprob -1 and two top tokens a gap apart.
func withLogprobs(t row.Timeline, gap float64) row.Timeline {
	for range t.Tokens {
		t.Logprobs = append(t.Logprobs, row.TokenLogprob{Logprob: -1, Top: []float64{-1, -1 - gap}})
	}
	return t
}

func text(id, text string, tokens int) row.Timeline {
	t := answer(id)
	t.Text, t.Usage.CompletionTokens = text, tokens
	return t
}

func failed(id string, status row.Status) row.Timeline {
	t := answer(id, count(8, 64)...)
	t.Status, t.Err = status, "because"
	return t
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name       string
		cold, warm row.Timeline
		want       Pair
	}{
		{"equal", answer("c", 1, 2, 3), answer("w", 1, 2, 3), Pair{Match: true, ColdLength: 3, WarmLength: 3, Compared: 3, Divergence: -1}},
		{"last token", answer("c", 1, 2, 3), answer("w", 1, 2, 4), Pair{ColdLength: 3, WarmLength: 3, Compared: 3, Divergence: 2}},
		{"first token", answer("c", 1, 2, 3), answer("w", 9, 2, 3), Pair{ColdLength: 3, WarmLength: 3, Compared: 3, Divergence: 0}},
		{"warm shorter", answer("c", 1, 2, 3), answer("w", 1, 2), Pair{ColdLength: 3, WarmLength: 2, Compared: 2, Divergence: 2}},
		{"cold shorter", answer("c", 1, 2), answer("w", 1, 2, 3), Pair{ColdLength: 2, WarmLength: 3, Compared: 2, Divergence: 2}},
		{"warm empty", answer("c", 1, 2), answer("w"), Pair{ColdLength: 2, Compared: 0, Divergence: 0}},
		{"both empty", answer("c"), answer("w"), Pair{Match: true, Divergence: -1}},
		{"warm failed, tokens equal", answer("c", count(8, 64)...), failed("w", row.CutOff), Pair{Failed: "warm request ended as truncated", Divergence: -1}},
		{"cold failed", failed("c", row.Stall), answer("w", count(8, 64)...), Pair{Failed: "cold request ended as stalled", Divergence: -1}},
		{"texts", text("c", "größer", 3), text("w", "größter", 4), Pair{ByText: true, ColdLength: 6, WarmLength: 7, Compared: 3, Divergence: 4}},
		{"texts equal", text("c", "same", 40), text("w", "same", 40), Pair{Match: true, ByText: true, ColdLength: 4, WarmLength: 4, Compared: 40, Divergence: -1}},
		{"one side has no ids", answer("c", 1), text("w", "same", 1), Pair{ByText: true, WarmLength: 4, Compared: 1, Divergence: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.ID = "w"
			got := Compare([]row.Timeline{c.cold}, []row.Timeline{c.warm})
			require.Equal(t, []Pair{c.want}, got.Pairs)
			require.Equal(t, 1, got.Total)
			require.Equal(t, c.want.Match, got.Matches == 1)
		})
	}
}

func TestComparePairs(t *testing.T) {
	a, b, c := answer("a", 1), answer("b", 2), answer("c", 3)
	for _, test := range []struct {
		name       string
		cold, warm []row.Timeline
		matches    int
		total      int
	}{
		{"same ids in another order", []row.Timeline{a, b, c}, []row.Timeline{c, a, b}, 3, 3},
		{"other ids go by position", []row.Timeline{answer("cold-0", 1), answer("cold-1", 2)}, []row.Timeline{answer("warm-0", 1), answer("warm-1", 2)}, 2, 2},
		{"other ids in another order", []row.Timeline{answer("cold-0", 1), answer("cold-1", 2)}, []row.Timeline{answer("warm-1", 2), answer("warm-0", 1)}, 0, 2},
		{"no ids", []row.Timeline{answer("", 1), answer("", 2)}, []row.Timeline{answer("", 1), answer("", 2)}, 2, 2},
		{"repeated ids go by position", []row.Timeline{answer("x", 1), answer("x", 2)}, []row.Timeline{answer("x", 1), answer("x", 2)}, 2, 2},
		{"cold repeats one, warm does not", []row.Timeline{a, answer("a", 2)}, []row.Timeline{a, b}, 2, 2},
		{"warm lacks one", []row.Timeline{a, b, c}, []row.Timeline{a, b}, 2, 3},
		{"warm has one more", []row.Timeline{a, b}, []row.Timeline{a, b, c}, 2, 3},
		{"nothing", nil, nil, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Compare(test.cold, test.warm)
			require.Equal(t, test.matches, got.Matches)
			require.Equal(t, test.total, got.Total)
			require.Len(t, got.Pairs, test.total)
			rate, ok := got.Rate()
			require.Equal(t, test.total > 0, ok)
			if ok {
				require.InDelta(t, float64(test.matches)/float64(test.total), rate, 1e-15)
			}
		})
	}
	got := Compare([]row.Timeline{a, b, c}, []row.Timeline{a})
	require.Equal(t, []string{"a", "b", "c"}, []string{got.Pairs[0].ID, got.Pairs[1].ID, got.Pairs[2].ID})
	require.Equal(t, "not in the warm pass", got.Pairs[2].Failed)
	require.Equal(t, "not in the cold pass", Compare(nil, []row.Timeline{a}).Pairs[0].Failed)
}

func TestCompareLogprobs(t *testing.T) {
	tokens := []int32{1, 2, 3, 4}
	other := []int32{1, 2, 9, 4}
	base := func() row.Timeline { return withLogprobs(answer("r", tokens...), 0.5) }
	for _, c := range []struct {
		name   string
		change func(warm *row.Timeline)
		want   *Logprobs
	}{
		{"equal", func(*row.Timeline) {}, &Logprobs{Compared: 4, At: -1, ColdNull: -1, WarmNull: -1}},
		{"one bit of one token", func(w *row.Timeline) { w.Logprobs[2].Logprob = math.Nextafter(-1, 0) }, &Logprobs{Compared: 4, Differing: 1, MaxShift: 1 - math.Nextafter(1, 0), At: 2, ColdNull: -1, WarmNull: -1}},
		{"an alternative", func(w *row.Timeline) { w.Logprobs[1].Top[1] -= 0.25; w.Logprobs[3].Top[1] += 0.125 }, &Logprobs{Compared: 4, Differing: 2, MaxShift: 0.25, At: 1, ColdNull: -1, WarmNull: -1}},
		{"fewer alternatives", func(w *row.Timeline) { w.Logprobs[0].Top = w.Logprobs[0].Top[:1] }, &Logprobs{Compared: 4, Differing: 1, At: 0, ColdNull: -1, WarmNull: -1}},
		{"null", func(w *row.Timeline) { w.Logprobs[3].Logprob = math.NaN() }, &Logprobs{Compared: 4, Differing: 1, At: 3, ColdNull: -1, WarmNull: 3}},
		{"null alternative", func(w *row.Timeline) { w.Logprobs[3].Top[1] = math.NaN() }, &Logprobs{Compared: 4, Differing: 1, At: 3, ColdNull: -1, WarmNull: 3}},
		{"only before the divergence", func(w *row.Timeline) { w.Tokens = other; w.Logprobs[2].Logprob = -5 }, &Logprobs{Compared: 2, At: -1, ColdNull: -1, WarmNull: -1}},
		{"null after the divergence", func(w *row.Timeline) { w.Tokens = other; w.Logprobs[3].Logprob = math.NaN() }, &Logprobs{Compared: 2, At: -1, ColdNull: -1, WarmNull: 3}},
		{"none", func(w *row.Timeline) { w.Logprobs = nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			warm := base()
			c.change(&warm)
			got := Compare([]row.Timeline{base()}, []row.Timeline{warm})
			if l := got.Pairs[0].Logprobs; l != nil {
				require.Len(t, l.shifts, l.Compared)
				l.shifts = nil
			}
			require.Equal(t, c.want, got.Pairs[0].Logprobs)
			_, err := json.Marshal(got)
			require.NoError(t, err)
		})
	}
	warm := base()
	warm.Tokens = other
	require.Equal(t, 0.5, *Compare([]row.Timeline{base()}, []row.Timeline{warm}).Pairs[0].TopGap)
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		matches, total int
		low, high      float64
	}{
		// Closed forms: at p = 1 low = n/(n+z²), at p = 0 high = z²/(n+z²).
		{10, 10, 10 / (10 + 3.8414588206941227), 1},
		{0, 10, 0, 3.8414588206941227 / (10 + 3.8414588206941227)},
		{1, 1, 1 / (1 + 3.8414588206941227), 1},
		{50, 100, 0.4038315, 0.5961685}, // 0.5 ± z/2/sqrt(100+z²)
		{0, 0, 0, 1},
	} {
		low, high := Wilson(c.matches, c.total)
		require.InDelta(t, c.low, low, 1e-7, fmt.Sprint(c))
		require.InDelta(t, c.high, high, 1e-7, fmt.Sprint(c))
	}
	c := Compare([]row.Timeline{answer("a", 1)}, []row.Timeline{answer("a", 1)})
	low, high := Wilson(1, 1)
	require.Equal(t, []float64{low, high}, []float64{c.Low, c.High})
}

// Of an engine that adds up in another order after a hit, logprobs within its
// rounding are equal, and those beyond it are not.
func TestCompareWithinRounding(t *testing.T) {
	answer := func(logprob float64) []row.Timeline {
		return []row.Timeline{{
			ID: "a", Status: row.OK, Tokens: []int32{9}, Logprobs: []row.TokenLogprob{{Logprob: logprob, Top: []float64{logprob, -3}}},
		}}
	}
	for _, c := range []struct {
		name      string
		shift     float64
		rounding  float64
		differing int
	}{
		{"every bit counts", 1e-9, 0, 1},
		{"within", 9e-5, 1e-4, 0},
		{"beyond", 2e-4, 1e-4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := CompareWithin(answer(-1), answer(-1+c.shift), c.rounding).Pairs[0].Logprobs
			require.Equal(t, c.differing, got.Differing)
			require.InDelta(t, c.shift, got.MaxShift, 1e-12, "it is shown all the same")
		})
	}
	missing := answer(-1)
	missing[0].Logprobs[0].Top = nil
	require.Equal(t, 1, CompareWithin(answer(-1), missing, 1e9).Pairs[0].Logprobs.Differing, "fewer alternatives are no rounding")
}
