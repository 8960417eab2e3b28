package vllmbench_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// The result of a real client, vLLM 0.32.0.
func TestRealResult(t *testing.T) {
	r, err := vllmbench.ReadFile("testdata/vllm-0.32.0.json")
	require.NoError(t, err)
	require.Equal(t, 2339*time.Millisecond, r.Elapsed().Round(time.Millisecond))
	s := r.Summary()
	require.Equal(t, 20, s.NumRequests)
	require.Zero(t, s.NumErrors)
	require.Equal(t, 10240, s.PromptTokens)
	require.Equal(t, 1280, s.CompletionTokens)
	require.InDelta(t, 188.371, *s.TTFTMean, 1e-3)
	require.InDelta(t, 466.715, *s.LatencyMean, 1e-3)
	require.InDelta(t, 2339.268, *s.PhaseElapsed, 1e-3)
	require.InDelta(t, 10240/2.33926850700027, *s.PromptTokPerS, 1e-3)

	timelines := r.Timelines("cold")
	require.Len(t, timelines, 20)
	var ttft, e2e time.Duration
	for _, tl := range timelines {
		require.Equal(t, row.OK, tl.Status)
		require.Equal(t, 512, tl.Usage.PromptTokens)
		require.Nil(t, tl.Usage.CachedTokens, "the client does not say")
		require.NotEmpty(t, tl.Text)
		first, ok := tl.TTFT()
		require.True(t, ok)
		last, ok := tl.E2E()
		require.True(t, ok)
		ttft, e2e = ttft+first, e2e+last
	}
	require.InDelta(t, 188.371, float64(ttft.Microseconds())/20e3, 0.01, "its own mean")
	require.InDelta(t, 466.715, float64(e2e.Microseconds())/20e3, 0.01, "its own mean")
}

func parse(t *testing.T, text string) vllmbench.Result {
	t.Helper()
	r, err := vllmbench.Parse([]byte(text))
	require.NoError(t, err)
	return r
}

func TestSummaryOfOlderVersions(t *testing.T) {
	s := parse(t, `{"completed":3,"failed":1,"benchmark_duration":2,"mean_ttft_ms":5,"total_input_tokens":10}`).Summary()
	require.Equal(t, 3, s.NumRequests)
	require.Equal(t, 1, s.NumErrors)
	require.Equal(t, 5.0, *s.LatencyMean, "the nearest that there is")
	require.Equal(t, 2000.0, *s.PhaseElapsed)
	require.Equal(t, 5.0, *s.PromptTokPerS)
	require.Equal(t, 7.0, *parse(t, `{"completed":3,"duration":2,"mean_ttft_ms":5,"mean_latency_ms":7}`).Summary().LatencyMean)
	require.Nil(t, parse(t, `{"completed":3,"duration":2}`).Summary().TTFTMean, "unknown, not 0")
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "[]", "{}", `{"completed":1}`, `{"duration":1}`, `{"completed":1,"duration":-1}`} {
		_, err := vllmbench.Parse([]byte(text))
		require.Error(t, err, text)
	}
}

func TestFailedRequests(t *testing.T) {
	r := parse(t, `{"completed":1,"failed":1,"duration":1,"input_lens":[4,4],"output_lens":[2,0],"start_times":[7,7.5],"ttfts":[0.1,0],"itls":[[0.2],[]],"errors":["","refused"],"generated_texts":["a",""]}`)
	timelines := r.Timelines("warm")
	require.Equal(t, row.OK, timelines[0].Status)
	e2e, ok := timelines[0].E2E()
	require.True(t, ok)
	require.Equal(t, 300*time.Millisecond, e2e.Round(time.Microsecond))
	require.Equal(t, row.StreamError, timelines[1].Status)
	require.Equal(t, "refused", timelines[1].Err)
	require.Empty(t, parse(t, `{"completed":1,"duration":1}`).Timelines("warm"), "nothing was saved in detail")
}

func TestCompareTexts(t *testing.T) {
	flat := func(texts ...string) string {
		list, err := json.Marshal(texts)
		require.NoError(t, err)
		return `{"completed":1,"duration":1,"generated_texts":` + string(list) + `}`
	}
	const nested = `{"completed":1,"duration":1,"outputs":[{"generated_text":"a"},{"generated_text":"b"}]}`
	for _, c := range []struct {
		name, cold, warm string
		available        bool
		matches, total   int
		accuracy         float64
		mismatch         bool
		reason           string
	}{
		{"equal", flat("a", "b"), flat("a", "b"), true, 2, 2, 1, false, ""},
		{"both shapes", flat("a", "b"), nested, true, 2, 2, 1, false, ""},
		{"one differs", flat("a", "b"), flat("a", "c"), true, 1, 2, 0.5, false, ""},
		{"over the longer list", flat("a", "b", "c", "d"), flat("a", "b"), true, 2, 4, 0.5, true, ""},
		{"missing", `{"completed":1,"duration":1}`, flat("a"), false, 0, 0, 0, false, "saved no texts of the cold pass"},
		{"missing in the warm pass", flat("a"), `{"completed":1,"duration":1,"outputs":[{}]}`, false, 0, 0, 0, false, "saved no texts of the warm pass"},
		{"nothing was sent", flat(), flat(), false, 0, 0, 0, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := vllmbench.CompareTexts(parse(t, c.cold), parse(t, c.warm))
			require.Equal(t, c.available, got.Available)
			require.Equal(t, c.matches, got.Matches)
			require.Equal(t, c.total, got.Total)
			require.Equal(t, c.mismatch, got.LengthMismatch)
			require.Contains(t, got.Reason, c.reason)
			if !c.available {
				require.Nil(t, got.Accuracy, "unknown, not 0")
				return
			}
			require.Equal(t, c.accuracy, *got.Accuracy)
			require.Len(t, got.Details, c.total-c.matches)
		})
	}
}

// Whatever the bytes: an error, or a result that can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"completed":1,"failed":1,"duration":1,"input_lens":[4],"output_lens":[2],"start_times":[7],"ttfts":[0.1],"itls":[[0.2]],"errors":[""],"generated_texts":["a"]}`))
	f.Add([]byte(`{"completed":1,"duration":1e308,"outputs":[{"generated_text":"a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := vllmbench.Parse(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, r.Elapsed(), time.Duration(0))
		_, err = json.Marshal(r.Summary())
		require.NoError(t, err, "JSON has no NaN and no infinity")
		for _, tl := range r.Timelines("cold") {
			require.NotEmpty(t, tl.ID)
		}
		_, err = json.Marshal(vllmbench.CompareTexts(r, r))
		require.NoError(t, err)
	})
}
