package artifact_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
)

var start = time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)

func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))

	require.NoError(t, artifact.CheckWritable(dir))
	missing := filepath.Join(dir, "not", "yet", "there")
	require.NoError(t, artifact.CheckWritable(missing))
	require.NoDirExists(t, filepath.Join(dir, "not"), "checking must create nothing")
	require.ErrorContains(t, artifact.CheckWritable(file), "is not a directory")
	require.ErrorContains(t, artifact.CheckWritable(filepath.Join(file, "below")), "is not a directory")
}

func TestCreateNeverReusesADirectory(t *testing.T) {
	parent := t.TempDir()
	first, err := artifact.Create(parent, start)
	require.NoError(t, err)
	second, err := artifact.Create(parent, start)
	require.NoError(t, err)
	require.Equal(t, "run_20261130_210000", first.ID)
	require.Equal(t, "run_20261130_210000_2", second.ID)
	require.DirExists(t, second.Dir)
}

func TestManifest(t *testing.T) {
	run := newRun(t)
	require.NoError(t, run.WriteManifest(artifact.Manifest{Command: []string{"x"}, Host: artifact.ThisHost(), Commit: artifact.ThisCommit()}))
	var got map[string]any
	readJSON(t, filepath.Join(run.Dir, "manifest.json"), &got)
	require.Equal(t, run.ID, got["run_id"])
	require.NotEmpty(t, got["commit"])
	require.NotZero(t, got["host"].(map[string]any)["cpus"])
}

func TestRequestHasTheFieldsOfTheOriginalRunner(t *testing.T) {
	cached := 96
	timeline := row.Timeline{
		ID: "id", Status: row.OK, HTTP: 200, Text: " w9 w10", Tokens: []int32{9, 10}, FinishReason: "length",
		Scheduled: start, Sent: start.Add(2 * time.Millisecond), FirstToken: start.Add(12 * time.Millisecond), LastToken: start.Add(32 * time.Millisecond),
		Usage:    &row.Usage{PromptTokens: 100, CompletionTokens: 2, CachedTokens: &cached},
		Logprobs: []row.TokenLogprob{{Logprob: -1.5}, {Logprob: math.NaN()}},
		Chunks:   []row.Chunk{{At: start.Add(12 * time.Millisecond)}},
	}
	cycle := newRun(t).Cell("lmcache", 32, "unique").Cycle("cycle-0")
	require.NoError(t, cycle.AppendRequest("warm", artifact.NewRequest("unique", fixtures.Request{Index: 3, Group: "g"}, timeline)))
	require.NoError(t, cycle.AppendRequest("warm", artifact.NewRequest("unique", fixtures.Request{Index: 4}, row.Timeline{Status: row.Stall, Err: "stalled"})))

	lines := readLines(t, cycle, "warm.requests.jsonl")
	require.Len(t, lines, 2)
	for key, want := range map[string]any{
		"sample_id": 3.0, "dataset": "unique", "generated_text": " w9 w10", "ttft_ms": 10.0, "latency_ms": 30.0,
		"prompt_tokens": 100.0, "completion_tokens": 2.0, "error": "", "queue_ms": 2.0, "cached_tokens": 96.0,
		"ttft_from_schedule_ms": 12.0, "logprobs": []any{-1.5, nil}, "chunk_ms": []any{10.0}, "group": "g",
	} {
		require.Equal(t, want, lines[0][key], key)
	}
	require.Nil(t, lines[1]["ttft_ms"], "what did not happen is null, never 0")
	require.Nil(t, lines[1]["cached_tokens"])
	require.Equal(t, "stalled", lines[1]["error"])
}

func TestSummaryLeavesFailuresOut(t *testing.T) {
	cached := 10
	ok := row.Timeline{
		Status: row.OK, Scheduled: start, Sent: start, FirstToken: start.Add(10 * time.Millisecond), LastToken: start.Add(20 * time.Millisecond),
		Usage: &row.Usage{PromptTokens: 50, CompletionTokens: 5, CachedTokens: &cached},
	}
	slow := ok
	slow.FirstToken, slow.LastToken = start.Add(30*time.Millisecond), start.Add(60*time.Millisecond)
	failed := row.Timeline{Status: row.StreamError, Sent: start, FirstToken: start.Add(time.Nanosecond)}

	s := artifact.Summarize([]row.Timeline{ok, slow}, 2*time.Second, 2)
	require.Equal(t, 20.0, *s.TTFTMean)
	require.Equal(t, 40.0, *s.LatencyMean)
	require.Equal(t, 100, s.PromptTokens)
	require.Equal(t, 50.0, *s.PromptTokPerS)
	require.Equal(t, 20, *s.UsageCachedTokens)

	s = artifact.Summarize([]row.Timeline{ok, failed}, time.Second, 2)
	require.Equal(t, 1, s.NumErrors)
	require.Equal(t, 10.0, *s.TTFTMean)
	require.Nil(t, s.UsageCachedTokens, "one request that says nothing makes the sum unknown")
	require.Nil(t, artifact.Summarize(nil, 0, 0).TTFTMean)
}

func TestMovedListsWhatChanged(t *testing.T) {
	a, b := map[string]string{"k": "a", "z": "1"}, map[string]string{"k": "b", "z": "1"}
	before := row.Snapshot{Series: []row.Series{{Name: "n", Labels: a, Value: 1}, {Name: "n", Labels: b, Value: 5}}}
	after := row.Snapshot{Series: []row.Series{{Name: "n", Labels: a, Value: 3}, {Name: "n", Labels: b, Value: 5}, {Name: "new", Value: 7}}}
	require.Equal(t, []row.Series{{Name: "n", Labels: a, Value: 2}, {Name: "new", Value: 7}}, artifact.Moved(before, after))
}

func TestFindingLeavesARepro(t *testing.T) {
	run := newRun(t)
	cycle := run.Cell("lmcache", 32, "unique").Cycle("cycle-1")
	finding := row.Finding{Code: row.OutputDiffers, Phase: "warm", Request: "lmcache-unique-1-warm-0", Evidence: "token 8"}
	require.NoError(t, cycle.AppendFinding(finding))
	require.NoError(t, cycle.WriteRepro(artifact.Repro{Finding: finding, Request: finding.Request, Prompt: []int32{8, 9}, Curl: "curl -s x"}))

	require.Equal(t, "output-differs", readLines(t, cycle, "findings.jsonl")[0]["code"])
	dir := filepath.Join(run.Dir, "lmcache", "block-32", "unique", "cycle-1", "repro")
	var repro map[string]any
	readJSON(t, filepath.Join(dir, "output-differs-"+finding.Request+".json"), &repro)
	require.Equal(t, []any{8.0, 9.0}, repro["prompt_token_ids"])
	script, err := os.ReadFile(filepath.Join(dir, "output-differs-"+finding.Request+".sh"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(script), "\ncurl -s x\n"), string(script))
}

func TestEachFindingHasARepro(t *testing.T) {
	run := newRun(t)
	cycle := run.Cell("lmcache", 32, "unique").Cycle("cycle-1")
	for _, f := range []row.Finding{
		{Code: row.OutputDiffers, Request: "r", Phase: "warm"},
		{Code: row.HitBelowOracle, Request: "r", Phase: "warm"},
		{Code: row.WitnessDisagrees, Phase: "cold"},
		{Code: row.WitnessDisagrees, Phase: "cold"},
	} {
		require.NoError(t, cycle.WriteRepro(artifact.Repro{Finding: f, Request: f.Request}))
	}
	entries, err := os.ReadDir(filepath.Join(cycle.Dir(), "repro"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{
		"hit-below-oracle-r.json", "output-differs-r.json", "witness-disagrees-cold-2.json", "witness-disagrees-cold.json",
	}, names)
}

func TestNilCycleWritesNothing(t *testing.T) {
	var cell *artifact.Cell
	cycle := cell.Cycle("cycle-0")
	require.NoError(t, cycle.AppendRequest("cold", artifact.Request{}))
	require.NoError(t, cycle.WritePass("cold", artifact.Pass{}))
	require.NoError(t, cycle.AppendFinding(row.Finding{}))
	require.NoError(t, cycle.WriteRepro(artifact.Repro{}))
}

func TestSamplesAreAppended(t *testing.T) {
	run := newRun(t)
	for i := range 2 {
		require.NoError(t, run.AppendSample(artifact.Sample{Backend: "baseline", Cycle: i, Metrics: map[string]float64{"hit-%": 0}}))
	}
	data, err := os.ReadFile(filepath.Join(run.Dir, "samples.jsonl"))
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(string(data)), "\n"), 2)
}

func newRun(t *testing.T) *artifact.Run {
	t.Helper()
	run, err := artifact.Create(t.TempDir(), start)
	require.NoError(t, err)
	return run
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v), string(data))
}

func readLines(t *testing.T, cycle *artifact.Cycle, name string) (lines []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cycle.Dir(), name))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		lines = append(lines, v)
	}
	return lines
}
