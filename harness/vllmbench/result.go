package vllmbench

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
)

// A Result is what the client wrote: the fields of --save-result and
// --save-detailed that are needed here. Pointers tell what is missing. Times
// are seconds, those with ms in their name milliseconds.
type Result struct {
	Completed    *int     `json:"completed"`
	Failed       int      `json:"failed"`
	Duration     *float64 `json:"duration"`
	OldDuration  *float64 `json:"benchmark_duration"`
	InputTokens  *int     `json:"total_input_tokens"`
	OutputTokens *int     `json:"total_output_tokens"`
	MeanTTFT     *float64 `json:"mean_ttft_ms"`
	MeanE2EL     *float64 `json:"mean_e2el_ms"`
	MeanLatency  *float64 `json:"mean_latency_ms"`

	InputLens  []int       `json:"input_lens"`
	OutputLens []int       `json:"output_lens"`
	Starts     []float64   `json:"start_times"`
	TTFTs      []float64   `json:"ttfts"`
	ITLs       [][]float64 `json:"itls"`
	Errors     []string    `json:"errors"`

	Generated []string `json:"generated_texts"`
	Outputs   []struct {
		Text *string `json:"generated_text"`
	} `json:"outputs"`
}

// ReadFile reads a result.
func ReadFile(path string) (Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Result{}, fmt.Errorf("reading the result of vllm bench serve: %w", err)
	}
	r, err := Parse(text)
	if err != nil {
		return Result{}, fmt.Errorf("reading the result of vllm bench serve, %s: %w", path, err)
	}
	return r, nil
}

// Parse reads the text of a result. Only what every version has is demanded.
func Parse(text []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		return Result{}, err
	}
	if r.Completed == nil {
		return Result{}, fmt.Errorf("it has no field completed")
	}
	if d, ok := r.seconds(); !ok || d < 0 || d > 1e9 {
		return Result{}, fmt.Errorf("it has no duration")
	}
	return r, nil
}

func (r Result) seconds() (float64, bool) {
	for _, d := range []*float64{r.Duration, r.OldDuration} {
		if d != nil && !math.IsNaN(*d) {
			return *d, true
		}
	}
	return 0, false
}

// Elapsed is the time over the requests.
func (r Result) Elapsed() time.Duration {
	d, _ := r.seconds()
	return seconds(d)
}

// Texts are the generated texts, by index; false where they were not saved.
func (r Result) Texts() ([]string, bool) {
	if r.Generated != nil {
		return r.Generated, true
	}
	var texts []string
	for _, o := range r.Outputs {
		if o.Text == nil {
			return nil, false
		}
		texts = append(texts, *o.Text)
	}
	return texts, texts != nil
}

// Summary is the result in the fields of DaseR's runner, which counts the
// requests that ended well.
func (r Result) Summary() artifact.Summary {
	s := artifact.Summary{NumRequests: *r.Completed, NumErrors: r.Failed, TTFTMean: r.MeanTTFT}
	for _, mean := range []*float64{r.MeanE2EL, r.MeanLatency, r.MeanTTFT} {
		if mean != nil {
			s.LatencyMean = mean
			break
		}
	}
	d, _ := r.seconds()
	elapsed := 1000 * d
	s.PhaseElapsed, s.RequestsElapsed = &elapsed, &elapsed
	if r.InputTokens != nil {
		s.PromptTokens = *r.InputTokens
		if rate := float64(s.PromptTokens) / d; !math.IsNaN(rate) && !math.IsInf(rate, 0) {
			s.PromptTokPerS = &rate
		}
	}
	if r.OutputTokens != nil {
		s.CompletionTokens = *r.OutputTokens
	}
	return s
}

// Timelines are the requests, as far as the client tells: when each was sent,
// when its first and last chunks came, its lengths and text. Its TTFT ends at the
// first chunk with a choice, whatever is in it. The gaps between chunks stay in
// its file: it does not tell how many tokens a chunk has, nor which chunks came
// in one read, so there is no time between tokens to be had from them.
func (r Result) Timelines(phase string) []row.Timeline {
	n := len(r.TTFTs)
	if len(r.Starts) != n || len(r.ITLs) != n || len(r.InputLens) != n || len(r.OutputLens) != n {
		return nil
	}
	texts, _ := r.Texts()
	first := math.Inf(1)
	for _, s := range r.Starts {
		first = min(first, s)
	}
	origin := time.Unix(0, 0)
	timelines := make([]row.Timeline, n)
	for i := range timelines {
		sent := origin.Add(seconds(r.Starts[i] - first))
		t := row.Timeline{
			ID: fmt.Sprintf("vllm-bench-%s-%d", phase, i), Status: row.OK, HTTP: 200, Scheduled: sent, Sent: sent, Connected: sent,
			Usage: &row.Usage{PromptTokens: r.InputLens[i], CompletionTokens: r.OutputLens[i]},
		}
		at := sent.Add(seconds(r.TTFTs[i]))
		t.FirstByte, t.FirstToken, t.FirstContent = at, at, at
		for _, gap := range r.ITLs[i] {
			at = at.Add(seconds(gap))
		}
		t.LastToken, t.End = at, at
		if i < len(texts) {
			t.Text = texts[i]
		}
		if i < len(r.Errors) && r.Errors[i] != "" {
			t = row.Timeline{ID: t.ID, Status: row.StreamError, Err: r.Errors[i], Scheduled: sent, Sent: sent, End: at}
		}
		timelines[i] = t
	}
	return timelines
}

func seconds(s float64) time.Duration {
	if math.IsNaN(s) || math.Abs(s) > 1e9 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// CompareTexts compares the texts of two runs by index, over the longer list.
func CompareTexts(cold, warm Result) artifact.Correctness {
	a, hasCold := cold.Texts()
	b, hasWarm := warm.Texts()
	c := artifact.Correctness{Details: []artifact.Mismatch{}}
	if !hasCold || !hasWarm {
		c.Reason = "vllm bench serve saved no texts of the " + map[bool]string{true: "warm", false: "cold"}[hasCold] + " pass"
		return c
	}
	c.Available, c.Total, c.LengthMismatch = true, max(len(a), len(b)), len(a) != len(b)
	for i := range c.Total {
		if i < len(a) && i < len(b) && a[i] == b[i] {
			c.Matches++
			continue
		}
		c.Details = append(c.Details, artifact.Mismatch{SampleID: i, Cold: at(a, i), Warm: at(b, i)})
	}
	c.Mismatches = c.Total - c.Matches
	if c.Total == 0 {
		c.Available, c.Reason = false, "no request was sent"
		return c
	}
	accuracy := float64(c.Matches) / float64(c.Total)
	c.Accuracy = &accuracy
	return c
}

func at(texts []string, i int) string {
	if i < len(texts) {
		return texts[i]
	}
	return ""
}
