package artifact

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// phaseOrder is the order of phases on the console.
var phaseOrder = []string{"baseline", "cold", "warm"}

// WriteConsole writes the comparison of a cycle as the key: value lines of
// DaseR's runner. What is not known is "null", as there.
func WriteConsole(w io.Writer, title, path string, r Results) {
	fmt.Fprintf(w, "== %s ==\n", strings.ToUpper(title))
	line := func(key string, value any) { fmt.Fprintf(w, "%s: %v\n", key, value) }
	for _, phase := range phaseOrder {
		p, ok := r.Result[phase]
		if !ok {
			continue
		}
		s := p.Summary
		for _, f := range []struct {
			key   string
			value *float64
		}{
			{"ttft_ms_mean", s.TTFTMean},
			{"latency_ms_mean", s.LatencyMean},
			{"elapsed_ms", s.PhaseElapsed},
			{"prompt_tok_per_s", s.PromptTokPerS},
			{"backend_cache_hit_rate", s.BackendHitRate},
			{"backend_server_cache_hit_rate", s.BackendHitRate},
			{"answer_contains_accuracy", s.AnswerAccuracy},
		} {
			line(phase+"_"+f.key, known(f.value))
		}
		if s.UploadedDocuments > 0 {
			line(phase+"_uploaded_documents", s.UploadedDocuments)
			line(phase+"_upload_ms", known(s.UploadMS))
		}
	}
	c := r.Correctness
	line("cold_warm_exact_match_available", c.Available)
	line("cold_warm_exact_match_accuracy", known(c.Accuracy))
	if c.Reason != "" {
		line("cold_warm_exact_match_reason", c.Reason)
	}
	line("results", path)
}

func known(v *float64) string {
	if v == nil {
		return "null"
	}
	rounded := math.Round(*v*1e4) / 1e4
	return fmt.Sprint(rounded)
}

// WriteSummary writes summary.txt.
func (r *Run) WriteSummary(text string) error {
	if err := os.WriteFile(filepath.Join(r.Dir, "summary.txt"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	return nil
}

// AnswersContained is the share of answered requests whose output has one of
// the right answers in it, whatever the case; nil where no right answer is
// known.
func AnswersContained(answers [][]string, outputs []string) *float64 {
	asked, right := 0, 0
	for i, accepted := range answers {
		if len(accepted) == 0 || i >= len(outputs) {
			continue
		}
		asked++
		output := strings.ToLower(outputs[i])
		if slices.ContainsFunc(accepted, func(a string) bool { return strings.Contains(output, strings.ToLower(strings.TrimSpace(a))) }) {
			right++
		}
	}
	if asked == 0 {
		return nil
	}
	return finite(float64(right) / float64(asked))
}
