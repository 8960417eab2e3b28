package verdict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

func cachedTokens(n int) *int { return &n }

func TestCheckRequest(t *testing.T) {
	want := row.Request{ID: "r-3", Prompt: count(8, 100), MaxTokens: 64, IgnoreEOS: true}
	good := func() row.Timeline {
		t := answer("r-3", count(8, 64)...)
		t.FinishReason, t.HTTP = "length", 200
		t.Usage.CachedTokens = cachedTokens(96)
		return t
	}
	for _, c := range []struct {
		name     string
		change   func(*row.Request, *row.Timeline)
		findings []row.Code
		evidence string // of the first
	}{
		{"good", func(*row.Request, *row.Timeline) {}, nil, ""},
		{"no connection", func(_ *row.Request, g *row.Timeline) { g.Status, g.Err = row.Unreachable, "connection refused" }, []row.Code{row.ServerDied}, "no answer: connection refused"},
		{"stall", func(_ *row.Request, g *row.Timeline) { g.Status = row.Stall; g.Chunks = make([]row.Chunk, 3) }, []row.Code{row.Stalled}, "nothing more came after 3 chunks"},
		{"cut off", func(_ *row.Request, g *row.Timeline) { g.Status = row.CutOff; g.Chunks = make([]row.Chunk, 2) }, []row.Code{row.Truncated}, "after 2 chunks without a finish reason"},
		{"HTTP 500", func(_ *row.Request, g *row.Timeline) { g.Status, g.HTTP, g.Err = row.HTTPError, 500, "oom" }, []row.Code{row.RequestFailed}, "HTTP status 500: oom"},
		{"error event", func(_ *row.Request, g *row.Timeline) { g.Status, g.Err = row.StreamError, "engine died" }, []row.Code{row.RequestFailed}, "in a stream of HTTP status 200: engine died"},
		{"interrupted", func(_ *row.Request, g *row.Timeline) { g.Status = row.Cancelled }, []row.Code{row.RequestFailed}, "cancelled by this run"},
		{"no status", func(_ *row.Request, g *row.Timeline) { g.Status = "" }, []row.Code{row.RequestFailed}, `ended as ""`},
		{"failed and wrong is failed", func(_ *row.Request, g *row.Timeline) { g.Status = row.CutOff; g.Usage.PromptTokens = 7 }, []row.Code{row.Truncated}, ""},
		{"prompt one token longer", func(_ *row.Request, g *row.Timeline) { g.Usage.PromptTokens = 101 }, []row.Code{row.PromptLength}, "100 prompt tokens were sent, the server counts 101"},
		{"prompt cut", func(_ *row.Request, g *row.Timeline) { g.Usage.PromptTokens = 99 }, []row.Code{row.PromptLength}, "counts 99"},
		{"no usage", func(_ *row.Request, g *row.Timeline) { g.Usage = nil }, []row.Code{row.WitnessMissing}, "no usage"},
		{"no usage and short", func(_ *row.Request, g *row.Timeline) { g.Usage = nil; g.Tokens = g.Tokens[:9] }, []row.Code{row.WitnessMissing, row.ShortOutput}, ""},
		{"short", func(_ *row.Request, g *row.Timeline) { g.Tokens = g.Tokens[:63]; g.Usage.CompletionTokens = 63 }, []row.Code{row.ShortOutput}, `63 of 64 tokens, finish reason "length"`},
		{"short, finish stop", func(_ *row.Request, g *row.Timeline) {
			g.Tokens = nil
			g.Usage.CompletionTokens = 10
			g.FinishReason = "stop"
		}, []row.Code{row.ShortOutput}, "10 of 64"},
		{"ended by itself, as it may", func(w *row.Request, g *row.Timeline) {
			w.IgnoreEOS = false
			g.Tokens = g.Tokens[:10]
			g.Usage.CompletionTokens = 10
			g.FinishReason = "stop"
		}, nil, ""},
		{"length without the length", func(w *row.Request, g *row.Timeline) {
			w.IgnoreEOS = false
			g.Tokens = g.Tokens[:10]
			g.Usage.CompletionTokens = 10
		}, []row.Code{row.ShortOutput}, ""},
		{"empty answer", func(_ *row.Request, g *row.Timeline) { g.Tokens = nil; g.Usage.CompletionTokens = 0 }, []row.Code{row.ShortOutput}, "0 of 64"},
		{"longer", func(_ *row.Request, g *row.Timeline) { g.Tokens = count(8, 65); g.Usage.CompletionTokens = 65 }, []row.Code{row.RequestFailed}, "65 tokens, max_tokens was 64"},
		{"tokens lost", func(_ *row.Request, g *row.Timeline) { g.Usage.CompletionTokens = 65 }, []row.Code{row.WitnessDisagrees}, "64 token ids arrived, usage says 65"},
		{"no ids, usage right", func(_ *row.Request, g *row.Timeline) { g.Tokens = nil }, nil, ""},
		{"more cached than prompt", func(_ *row.Request, g *row.Timeline) { g.Usage.CachedTokens = cachedTokens(2048) }, []row.Code{row.ImpossibleCounter}, "2048 of 100 prompt tokens were cached"},
		{"cached below 0", func(_ *row.Request, g *row.Timeline) { g.Usage.CachedTokens = cachedTokens(-1) }, []row.Code{row.ImpossibleCounter}, ""},
		{"cached unknown is for the pass to say", func(_ *row.Request, g *row.Timeline) { g.Usage.CachedTokens = nil }, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, got := want, good()
			c.change(&request, &got)
			findings := CheckRequest("warm", request, got)
			require.Equal(t, c.findings, codes(findings))
			for _, f := range findings {
				require.Equal(t, "r-3", f.Request)
				require.Equal(t, "warm", f.Phase)
				require.NotEmpty(t, f.Advice)
			}
			if len(findings) > 0 {
				require.Contains(t, findings[0].Evidence, c.evidence)
			}
		})
	}
}

func TestCheckTokens(t *testing.T) {
	require.Empty(t, CheckTokens("cold", answer("r", 0, 4095), 4096))
	require.Empty(t, CheckTokens("cold", answer("r", 0, 99999), 0), "nobody knows")
	require.Equal(t, []row.Code{row.RequestFailed}, codes(CheckTokens("cold", answer("r", 0, 4096), 4096)))
	require.Contains(t, CheckTokens("cold", answer("r", 3, -1), 4096)[0].Evidence, "token 1 of the answer is id -1")
}

func TestCheckHit(t *testing.T) {
	got := func(cached *int) row.Timeline {
		t := answer("r-1", 8)
		t.Usage.PromptTokens, t.Usage.CachedTokens = 1024, cached
		return t
	}
	for _, c := range []struct {
		name     string
		phase    string
		cached   *int
		expected fixtures.Interval
		want     []row.Code
	}{
		{"right", "warm", cachedTokens(960), fixtures.Interval{Min: 960, Max: 960}, nil},
		{"one token less", "warm", cachedTokens(959), fixtures.Interval{Min: 960, Max: 960}, []row.Code{row.HitBelowOracle}},
		{"one token more", "warm", cachedTokens(961), fixtures.Interval{Min: 960, Max: 960}, []row.Code{row.HitAboveOracle}},
		{"cold", "cold", cachedTokens(0), fixtures.Interval{}, nil},
		{"not cold", "cold", cachedTokens(64), fixtures.Interval{}, []row.Code{row.ColdNotCold}},
		{"the plan's own sharing", "cold", cachedTokens(64), fixtures.Interval{Min: 0, Max: 512}, nil},
		{"less than the plan's own sharing", "cold", cachedTokens(0), fixtures.Interval{Min: 512, Max: 512}, []row.Code{row.HitBelowOracle}},
		{"unknown", "warm", nil, fixtures.Interval{Min: 960, Max: 960}, nil},
		{"impossible", "warm", cachedTokens(2048), fixtures.Interval{Min: 960, Max: 960}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings := CheckHit(c.phase, got(c.cached), c.expected, "floor((P-1)/64)*64")
			require.Equal(t, c.want, codes(findings))
			if len(findings) > 0 {
				require.Contains(t, findings[0].Evidence, "the plan gives "+c.expected.String()+" under floor((P-1)/64)*64")
				require.Equal(t, "r-1", findings[0].Request)
			}
		})
	}
}
