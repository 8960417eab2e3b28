package harness

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A tableRow is one row and workload in the table at the end.
type tableRow struct {
	backend, workload string
	cold, warm        []time.Duration // TTFT of every request
	hit, prompt       int             // tokens, warm
	match, compared   int             // requests
	verdict           verdict.Verdict
	grade             verdict.Grade
	labels            []row.Label
	anatomies         []run.Anatomy // of warm passes; none: not known
	failure           string
	summary           *summary // of its last cycle
}

func (s *session) newTableRow(backend, workload string) *tableRow {
	r := &tableRow{backend: backend, workload: workload}
	s.table = append(s.table, r)
	return r
}

// fail keeps the first reason.
func (r *tableRow) fail(reason string) {
	if r.failure == "" {
		r.failure = reason
	}
}

func (r *tableRow) add(result run.Result, proof run.Proof) {
	r.cold = append(r.cold, ttfts(result.Cold.Timelines)...)
	r.warm = append(r.warm, ttfts(result.Warm.Timelines)...)
	r.hit += result.Warm.HitTokens
	r.prompt += result.Warm.Accounted()
	r.match += result.Comparison.Matches
	r.compared += result.Comparison.Total
	r.verdict = proof.Verdict
	if r.grade == "" {
		r.grade = proof.Grade
	}
	r.grade = verdict.Worst(r.grade, result.Grade())
	if a := result.Warm.Anatomy; a != nil {
		r.anatomies = append(r.anatomies, *a)
	}
	for _, l := range result.Labels {
		if !slices.Contains(r.labels, l) {
			r.labels = append(r.labels, l)
		}
	}
}

func ttfts(timelines []row.Timeline) (ds []time.Duration) {
	for _, t := range timelines {
		if d, ok := t.TTFT(); ok {
			ds = append(ds, d)
		}
	}
	return ds
}

// printTable shows what was measured, as comment lines that benchstat passes
// over. Against the baseline: its warm pass, which recomputes the same
// prompts, and for the cold tax its cold pass.
func printTable(w io.Writer, rows []*tableRow) {
	lines := &commentWriter{w: w}
	t := tabwriter.NewWriter(lines, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tworkload\tcold TTFT\twarm TTFT\tspeed-up\tvs baseline\tcold tax\thit %\tmatch %\tverdict\tgrade\tlabels\t")
	for _, r := range rows {
		if r.failure != "" || len(r.cold) == 0 || len(r.warm) == 0 {
			reason := r.failure
			if reason == "" {
				reason = "not finished"
			}
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\t-\t-\t%s\t%s\t\t\n", r.backend, r.workload, reason, verdict.Invalid)
			continue
		}
		cold, warm := metric.Percentile(r.cold, 0.5), metric.Percentile(r.warm, 0.5)
		against, tax := "-", "-"
		if base := baselineOf(rows, r.workload); base != nil && base != r {
			baseCold, baseWarm := metric.Percentile(base.cold, 0.5), metric.Percentile(base.warm, 0.5)
			against = fmt.Sprintf("%.1fx", ratio(baseWarm, warm))
			tax = fmt.Sprintf("%+.0f%%", 100*(ratio(cold, baseCold)-1))
		}
		hits := "-" // not known, which is not 0
		if r.prompt > 0 {
			hits = fmt.Sprintf("%.1f", percent(r.hit, r.prompt))
		}
		match := "-"
		if r.compared > 0 {
			match = fmt.Sprintf("%.1f", percent(r.match, r.compared))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1fx\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.backend, r.workload,
			milliseconds(cold), milliseconds(warm), ratio(cold, warm), against, tax,
			hits, match, r.verdict, r.grade, strings.Trim(fmt.Sprint(r.labels), "[]"))
	}
	t.Flush()
}

func baselineOf(rows []*tableRow, workload string) *tableRow {
	for _, r := range rows {
		if r.backend == "baseline" && r.workload == workload && r.failure == "" && len(r.cold) > 0 && len(r.warm) > 0 {
			return r
		}
	}
	return nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// commentWriter puts "# " before every line.
type commentWriter struct {
	w      io.Writer
	inLine bool
}

func (c *commentWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		if !c.inLine {
			if _, err := io.WriteString(c.w, "# "); err != nil {
				return 0, err
			}
		}
		c.inLine = b != '\n'
		if _, err := c.w.Write([]byte{b}); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
