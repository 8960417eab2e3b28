package run_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

func TestHealthyCycle(t *testing.T) {
	f := newFake()
	var timed []string
	cell := f.cell(t, func(c *run.Config) {
		c.Timed = func(running bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.log = append(f.log, map[bool]string{true: "start timer", false: "stop timer"}[running])
		}
	})
	result, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, verdict.Proven, result.Grade())
	require.Zero(t, result.Cold.HitTokens)
	require.Equal(t, 3*32, result.Warm.HitTokens)
	require.Equal(t, 80.0, result.Warm.HitPercent())
	require.Equal(t, 3, result.Comparison.Matches)

	// Order: reset proved, then each pass between snapshots, timed over its
	// requests only, settled before its counters are read again.
	for _, step := range f.log {
		if !strings.HasPrefix(step, "fake-unique") {
			timed = append(timed, step)
		}
	}
	pass := []string{"snapshot", "start timer", "stop timer", "settle", "snapshot"}
	want := append([]string{
		"snapshot", "sacrificial-store", "settle", "sacrificial-load", "settle", "cold", "sacrificial-after-reset", "settle",
	}, append(pass, pass...)...)
	require.Equal(t, want, timed)
}

func TestCyclesHaveFreshContent(t *testing.T) {
	f := newFake()
	f.reset = func() error { return nil } // keeps everything: only content can be cold
	cell := f.cell(t, func(c *run.Config) { c.Reset = false })
	seen := make(map[string]bool)
	for i := range 3 {
		result, findings, err := cell.Cycle(t.Context())
		require.NoError(t, err)
		require.Empty(t, findings)
		require.Equal(t, i+1, result.Cycle)
		require.Zero(t, result.Cold.HitTokens)
		first, err := json.Marshal(result.Cold.Requests[0].Prompt)
		require.NoError(t, err)
		require.False(t, seen[string(first)])
		seen[string(first)] = true
	}
}

func TestProof(t *testing.T) {
	f := newFake()
	dir := t.TempDir()
	created, err := artifact.Create(dir, time.Unix(0, 0))
	require.NoError(t, err)
	cell := f.cell(t, func(c *run.Config) { c.Artifacts = created.Cell("fake", block, "unique") })
	proof, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, verdict.Identical, proof.Verdict)
	require.Equal(t, verdict.Proven, proof.Grade)
	require.Len(t, proof.Result.Cold.Requests, 2, "ProofRequests")
	for _, p := range proof.Result.Comparison.Pairs {
		require.Equal(t, 64, p.Compared, "outputs are lengthened so that they can be called identical")
		require.Equal(t, 64, p.Logprobs.Compared)
	}
	require.FileExists(t, filepath.Join(created.Dir, "fake", "block-16", "unique", "proof", "proof.json"))
}

// TestFindings: what a broken server shows, by the code that it must have.
func TestFindings(t *testing.T) {
	phase := func(name string, change func(*row.Timeline)) func(*fake) {
		return func(f *fake) {
			f.answer = func(r row.Request, tl *row.Timeline) {
				if strings.Contains(r.ID, name) {
					change(tl)
				}
			}
		}
	}
	tests := []struct {
		name   string
		damage func(*fake)
		want   []row.Code
	}{
		{"answer differs", phase("-warm-1", func(tl *row.Timeline) { tl.Tokens[2]++ }), []row.Code{row.OutputDiffers}},
		{"error event", phase("-cold-0", func(tl *row.Timeline) { tl.Status, tl.Err = row.StreamError, "engine died" }), []row.Code{row.RequestFailed}},
		{"cut off", phase("-warm-0", func(tl *row.Timeline) { tl.Status, tl.Err = row.CutOff, "cut" }), []row.Code{row.Truncated}},
		{"stall", phase("-cold-0", func(tl *row.Timeline) { tl.Status, tl.Err = row.Stall, "nothing came" }), []row.Code{row.Stalled}},
		{"connection closed", phase("-cold-2", func(tl *row.Timeline) { tl.Status, tl.Err = row.Unreachable, "EOF" }), []row.Code{row.RequestFailed}},
		{"gone", func(f *fake) {
			f.answer = func(r row.Request, tl *row.Timeline) {
				if f.dead = f.dead || strings.Contains(r.ID, "-cold-2"); f.dead {
					tl.Status, tl.Err = row.Unreachable, "refused"
				}
			}
		}, []row.Code{row.ServerDied, row.WitnessMissing}},
		{"gone in mid-stream", func(f *fake) {
			f.answer = func(r row.Request, tl *row.Timeline) {
				if f.dead = f.dead || strings.Contains(r.ID, "-warm-2"); f.dead {
					tl.Status, tl.Err = row.CutOff, "unexpected EOF"
				}
			}
		}, []row.Code{row.ServerDied, row.WitnessMissing}},
		{"short", phase("-cold-1", func(tl *row.Timeline) { tl.Tokens = tl.Tokens[:2]; tl.Usage.CompletionTokens = 2 }), []row.Code{row.ShortOutput, row.OutputDiffers}},
		{"prompt length", phase("-cold-1", func(tl *row.Timeline) { tl.Usage.PromptTokens++ }), []row.Code{row.PromptLength}},
		{"foreign id", phase("-warm-1", func(tl *row.Timeline) { tl.Tokens[0] = 1024 }), []row.Code{row.RequestFailed, row.OutputDiffers}},
		{"another prompt", phase("-warm-1", func(tl *row.Timeline) { tl.Prompt = []int32{8, 9} }), []row.Code{row.PromptDiffers}},
		{"too few hits", phase("-warm-1", func(tl *row.Timeline) { *tl.Usage.CachedTokens -= block }), []row.Code{row.HitBelowOracle, row.WitnessDisagrees}},
		{"hits in the cold pass", phase("-cold-1", func(tl *row.Timeline) { *tl.Usage.CachedTokens = block }), []row.Code{row.ColdNotCold, row.WitnessDisagrees}},
		{"usage silent", phase("-warm-", func(tl *row.Timeline) { tl.Usage.CachedTokens = nil }), []row.Code{row.WitnessMissing}},
		{"reset does nothing", func(f *fake) { f.reset = func() error { return nil } }, []row.Code{row.ResetNotHonoured}},
		{"reset refused", func(f *fake) { f.reset = func() error { return errors.New("success:false") } }, []row.Code{row.ResetNotHonoured}},
		{"nothing stored", phase("sacrificial-load", func(tl *row.Timeline) { *tl.Usage.CachedTokens = 0 }), []row.Code{row.HitBelowOracle}},
		{"reset not provable", phase("sacrificial", func(tl *row.Timeline) { tl.Usage.CachedTokens = nil }), []row.Code{row.WitnessMissing}},
		{"counter counts more", func(f *fake) { f.wrong = 16 }, []row.Code{row.WitnessDisagrees}},
		{"counters gone", func(f *fake) { f.dead = true }, []row.Code{row.WitnessMissing}},
		{"never settles", func(f *fake) { f.settle = errors.New("busy") }, []row.Code{row.Stalled}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			test.damage(f)
			result, findings, err := f.cell(t).Cycle(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, findings)
			require.Subset(t, test.want, codes(findings), "%v", findings)
			require.Contains(t, codes(findings), test.want[0])
			require.Equal(t, verdict.Invalid, result.Grade())
			for _, found := range findings {
				require.NotEmpty(t, found.Phase)
				require.NotEmpty(t, found.Evidence)
				require.NotEmpty(t, found.Advice)
			}
		})
	}
}

func TestProofSeesWhatTokensDoNotShow(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*row.TokenLogprob)
		want   row.Code
	}{
		"shift": {func(p *row.TokenLogprob) { p.Logprob = math.Nextafter(p.Logprob, 0) }, row.LogprobShift},
		"null":  {func(p *row.TokenLogprob) { p.Logprob = math.NaN() }, row.LogprobNull},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.answer = func(r row.Request, tl *row.Timeline) {
				if strings.Contains(r.ID, "-warm-0") && len(tl.Logprobs) > 5 {
					test.change(&tl.Logprobs[5])
				}
			}
			proof, findings, err := f.cell(t).Proof(t.Context())
			require.NoError(t, err)
			require.Equal(t, []row.Code{test.want}, codes(findings))
			require.Equal(t, verdict.Invalid, proof.Grade)
		})
	}
}

func TestWithoutReuseNothingIsReset(t *testing.T) {
	f := newFake()
	server := f.server()
	server.Law = fixtures.NoReuse()
	server.Witnesses = nil
	f.answer = func(_ row.Request, tl *row.Timeline) { *tl.Usage.CachedTokens = 0 }
	workload, err := fixtures.ByName("unique")
	require.NoError(t, err)
	cell := run.NewCell(server, run.Config{
		Workload: workload, Concurrency: 1, Exact: true,
		Params: fixtures.Params{Requests: 2, InputLen: 40, OutputLen: 2, BlockSize: block, Context: 1024, Vocab: 1024},
	})
	_, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
	require.NotContains(t, f.log, "cold")
	require.NotContains(t, strings.Join(f.log, " "), "sacrificial")
}

// TestFindingLeavesWhatIsNeeded: findings on disk, and for the request a
// folder with ids, a curl line and both outputs.
func TestFindingLeavesWhatIsNeeded(t *testing.T) {
	f := newFake()
	f.answer = func(r row.Request, tl *row.Timeline) {
		if strings.Contains(r.ID, "-warm-1") {
			tl.Tokens[0]++
		}
	}
	created, err := artifact.Create(t.TempDir(), time.Unix(0, 0))
	require.NoError(t, err)
	cell := f.cell(t, func(c *run.Config) {
		c.Artifacts, c.Command = created.Cell("fake", block, "unique"), []string{"the", "command"}
	})
	result, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.Len(t, findings, 1)

	dir := filepath.Join(created.Dir, "fake", "block-16", "unique", "cycle-1")
	for _, name := range []string{"cold.requests.jsonl", "cold.json", "warm.requests.jsonl", "warm.json", "findings.jsonl"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
	data, err := os.ReadFile(filepath.Join(dir, "repro", "output-differs-fake-unique-1-warm-1.json"))
	require.NoError(t, err)
	var repro artifact.Repro
	require.NoError(t, json.Unmarshal(data, &repro))
	require.Equal(t, result.Warm.Requests[1].Prompt, repro.Prompt)
	require.Equal(t, []string{"the", "command"}, repro.Command)
	require.Contains(t, repro.Curl, "curl -s http://127.0.0.1:1/v1/completions")
	require.Contains(t, repro.Outputs, "cold")
	require.Contains(t, repro.Outputs, "warm")
}

// TestInterrupted: a run that is cancelled reports the cancellation, not
// findings about requests that it cut itself.
func TestInterrupted(t *testing.T) {
	f := newFake()
	ctx, cancel := context.WithCancel(t.Context())
	f.answer = func(r row.Request, _ *row.Timeline) {
		if strings.Contains(r.ID, "-warm-0") {
			cancel()
		}
	}
	result, findings, err := f.cell(t).Cycle(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, findings)
	require.Len(t, result.Cold.Timelines, 3, "what was done before is kept")
}

func TestStartReadsBlockSizesBack(t *testing.T) {
	server := newFake().server()
	require.Empty(t, run.Start(t.Context(), server, block))
	require.Equal(t, []row.Code{row.BlockSizeIgnored}, codes(run.Start(t.Context(), server, 2*block)))
	server.BlockSize[0].Read = func(context.Context) (int, error) { return 0, errors.New("silent") }
	require.Equal(t, []row.Code{row.WitnessMissing}, codes(run.Start(t.Context(), server, block)))
}

func TestWarmUp(t *testing.T) {
	f := newFake()
	params := fixtures.Params{Requests: 3, InputLen: 40, OutputLen: 4, BlockSize: block, Context: 1024, Vocab: 1024}
	require.NoError(t, run.WarmUp(t.Context(), f.server(), params, 2))
	require.Contains(t, f.log, "settle")

	f.answer = func(_ row.Request, tl *row.Timeline) { tl.Status, tl.Err = row.StreamError, "broken" }
	require.ErrorContains(t, run.WarmUp(t.Context(), f.server(), params, 2), "broken")
}
