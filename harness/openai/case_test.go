package openai

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// An sseCase is a stream with what must come out of it. Times are nominal.
type sseCase struct {
	Name     string
	Stream   []byte
	Endpoint string                     `json:"endpoint"`
	Input    string                     `json:"input"`
	Writes   [][2]int                   `json:"writes"` // ms, offset up to which the stream is written then
	Expect   map[string]json.RawMessage `json:"expect"`
}

func loadCases(tb testing.TB) []sseCase {
	tb.Helper()
	files, err := filepath.Glob("testdata/cases/*.expect.json")
	require.NoError(tb, err)
	require.Len(tb, files, 15)
	var cases []sseCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(tb, err)
		c := sseCase{Name: strings.TrimSuffix(filepath.Base(file), ".expect.json")}
		require.NoError(tb, json.Unmarshal(text, &c))
		c.Stream, err = os.ReadFile(filepath.Join(filepath.Dir(file), c.Input))
		require.NoError(tb, err)
		require.Equal(tb, len(c.Stream), c.Writes[len(c.Writes)-1][1])
		cases = append(cases, c)
	}
	return cases
}

// writes are the pieces of the stream, one for each write.
func (c sseCase) writes() [][]byte {
	var out [][]byte
	from := 0
	for _, w := range c.Writes {
		out = append(out, c.Stream[from:w[1]])
		from = w[1]
	}
	return out
}

// nominalStart is the time 0 of the nominal clock.
var nominalStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func nominal(ms int) time.Time { return nominalStart.Add(time.Duration(ms) * time.Millisecond) }

// pieces is a source that gives one piece a read, and then err (nil: io.EOF).
type pieces struct {
	parts [][]byte
	reads int
	err   error
}

func (p *pieces) Read(buf []byte) (int, error) {
	if p.reads == len(p.parts) {
		if p.err != nil {
			return 0, p.err
		}
		return 0, io.EOF
	}
	n := copy(buf, p.parts[p.reads])
	if n < len(p.parts[p.reads]) {
		p.parts[p.reads] = p.parts[p.reads][n:]
		return n, nil
	}
	p.reads++
	return n, nil
}

// play reads the parts of a stream as a body whose k-th read returns at
// at(k), from 1, and returns the timeline of a request sent at time 0.
func play(parts [][]byte, end error, at func(read int) time.Time) row.Timeline {
	t := row.Timeline{HTTP: 200, Sent: nominalStart}
	source := &pieces{parts: slices.Clone(parts), err: end}
	reads := 0
	rec := record(source, new(space), func() (time.Time, int) {
		reads++
		return at(reads), reads
	}, func(time.Duration) {})
	fill(&t, rec)
	return t
}

// check compares every expectation of a case with a timeline in nominal time.
func (c sseCase) check(t *testing.T, got row.Timeline) {
	t.Helper()
	at := func(when time.Time) any {
		if when.IsZero() {
			return nil
		}
		return float64(when.Sub(got.Sent)) / 1e6
	}
	list := func(values []time.Duration) any {
		out := []any{}
		for _, v := range values {
			out = append(out, float64(v)/1e6)
		}
		return out
	}
	some := func(value any, known bool) any {
		if !known {
			return nil
		}
		return value
	}
	tokens, source := OutputTokens(got)
	itl, itlValid := ITL(got)
	tpot, hasTPOT := TPOT(got)
	rate, hasRate := HitRate(got)
	var cached, prompt any
	if got.Usage != nil {
		prompt = float64(got.Usage.PromptTokens)
		if got.Usage.CachedTokens != nil {
			cached = float64(*got.Usage.CachedTokens)
		}
	}
	actual := map[string]any{
		"status":               string(got.Status),
		"ttft_ms":              at(got.FirstToken),
		"ttft_content_ms":      at(got.FirstContent),
		"first_byte_ms":        at(got.FirstByte),
		"text":                 got.Text,
		"partial_text":         got.Text,
		"reasoning_text":       got.Reasoning,
		"output_tokens":        some(float64(tokens), source != Unknown),
		"output_tokens_source": string(source),
		"chunk_gap_ms":         list(ChunkGaps(got)),
		"itl_ms":               list(itl),
		"itl_valid":            itlValid,
		"tpot_ms":              some(float64(tpot)/1e6, hasTPOT),
		"prompt_tokens":        prompt,
		"cached_tokens":        cached,
		"hit_rate":             some(math.Round(rate*1e6)/1e6, hasRate),
		"counts_in_latency":    InLatency(got),
		"counts_in_ttft":       InTTFT(got),
	}
	for key, raw := range c.Expect {
		var want any
		require.NoError(t, json.Unmarshal(raw, &want))
		switch key {
		case "error_contains":
			require.Contains(t, got.Err, want)
		case "warn", "invalid":
			for _, warning := range want.([]any) {
				require.Contains(t, got.Warnings, row.Warning(warning.(string)))
			}
		case "tool_calls":
			var calls []row.ToolCall
			require.NoError(t, json.Unmarshal(raw, &calls))
			require.Equal(t, calls, got.ToolCalls)
		default:
			require.Contains(t, actual, key, "an expectation that nobody checks")
			require.Equal(t, want, actual[key], key)
		}
	}
	c.checkRest(t, got)
}

// checkRest states what the cases leave unsaid: no warning that they do not
// explain, and an error text exactly where there is an error.
func (c sseCase) checkRest(t *testing.T, got row.Timeline) {
	t.Helper()
	allowed := map[row.Warning]bool{
		row.MissingUsage: got.Usage == nil,
		row.Coalesced:    coalesced(got.Chunks),
	}
	for _, key := range []string{"warn", "invalid"} {
		var named []row.Warning
		if raw, ok := c.Expect[key]; ok {
			require.NoError(t, json.Unmarshal(raw, &named))
		}
		for _, w := range named {
			allowed[w] = true
		}
	}
	for _, w := range got.Warnings {
		require.True(t, allowed[w], "unexpected warning %s", w)
	}
	require.Equal(t, got.Status == row.OK, got.Err == "", got.Err)
}

func TestCasesInNominalTime(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			got := play(c.writes(), nil, func(read int) time.Time { return nominal(c.Writes[read-1][0]) })
			c.check(t, got)
		})
	}
}
