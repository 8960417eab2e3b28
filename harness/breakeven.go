package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/breakeven"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// breakEvenRepeats is how often each length is measured for one sample.
const breakEvenRepeats = 3

// A BreakEven is a row and the tier that its hits come from.
type BreakEven struct {
	session  *session
	shared   *sharedServer
	baseline *sharedServer // nil: the row's own cold requests stand in
	tier     row.Tier      // empty: the row has no tiers
	block    int
	flush    int
	samples  *int // measured so far on this server
	result   breakeven.Result

	tokenBytes int // KV of a token; 0: not known
}

// A breakEvenLine is what is said of one at the end.
type breakEvenLine struct {
	name      string
	result    breakeven.Result
	predicted int // tokens
	roofline  roofline
}

// EachTier runs body for every selected row that reuses prefixes, and each tier
// of it that hits can come from, as sub-benchmarks backend=…/block=…/tier=….
func EachTier(b *testing.B, body func(*testing.B, *BreakEven)) {
	s := current
	for _, r := range s.selection.rows {
		if !r.Supports(row.Reuse) || r.Supports(row.Documents) {
			continue
		}
		b.Run("backend="+metric.Slug(r.Name()), func(b *testing.B) {
			if missing := missingOf(r); missing != "" {
				Missing(b, "%s.", missing)
			}
			b.Run(fmt.Sprintf("block=%d", s.settings.BlockSize), func(b *testing.B) {
				for _, tier := range s.tiersOf(r) {
					samples := 0 // outlives the repeats of -count
					e := &BreakEven{session: s, tier: tier, block: s.settings.BlockSize, samples: &samples}
					e.shared, e.baseline = s.share(b, r, "", e.budgets()), s.baselineFor(b)
					b.Run("tier="+tierName(tier), func(b *testing.B) { body(b, e) })
				}
			})
		})
	}
}

// tiersOf are those that a row's hits can be made to come from here.
func (s *session) tiersOf(r row.Row) []row.Tier {
	if r.Supports(row.Tiered) && s.inProcess() {
		return []row.Tier{row.L1, row.L2}
	}
	return []row.Tier{""}
}

func tierName(t row.Tier) string {
	if t == "" {
		return "any"
	}
	return string(t)
}

// baselineFor is a server that computes, where this build can start one beside
// the row's.
func (s *session) baselineFor(b *testing.B) *sharedServer {
	if !s.inProcess() {
		return nil
	}
	rows, _, err := recipe.Select("baseline", recipe.Mini{Model: s.settings.Model})
	if err != nil {
		b.Fatal(err)
	}
	return s.share(b, rows[0], "", nil)
}

func (e *BreakEven) lengths() []int {
	return breakeven.Lengths(e.block, e.session.settings.InputLen, e.session.selection.params.Context)
}

// budgets are the sizes of a store whose tiers are told apart: one with room for
// everything, or whose first tier holds little more than the longest prompt.
func (e *BreakEven) budgets() *fixtures.Budgets {
	lengths := e.lengths()
	if e.tier == "" || len(lengths) == 0 {
		return nil
	}
	slot := int64(e.session.tokenBytes() * float64(e.block))
	longest := lengths[len(lengths)-1]/e.block + 1
	all := int64(breakEvenRepeats * 4 * len(lengths) * longest * 4)
	b := &fixtures.Budgets{SlotBytes: slot, L1Bytes: all * slot, L2Bytes: 8 * all * slot}
	if e.tier == row.L2 {
		b.L1Bytes = int64(2*longest) * slot
		e.flush = 2 * longest * e.block
	}
	return b
}

// tokenBytes is the KV of a token on the miniature stack.
func (s *session) tokenBytes() float64 {
	model, err := recipe.MiniModel(s.settings.Model)
	if err != nil {
		return 0
	}
	slot, err := recipe.MiniFacts(model).SlotBytes(s.settings.BlockSize, 1)
	if err != nil {
		return 0
	}
	return float64(slot) / float64(s.settings.BlockSize)
}

// Measure takes one sample: all lengths, a few times. Findings fail the
// benchmark.
func (e *BreakEven) Measure(b *testing.B) {
	b.Helper()
	b.StopTimer()
	lengths := e.lengths()
	if len(lengths) < 2 {
		b.Fatalf("-blocksize=%d: a context of %d has no room for hits of two lengths", e.block, e.session.selection.params.Context)
	}
	server, err := e.shared.start()
	if err != nil {
		b.Fatal(err)
	}
	e.tokenBytes = server.TokenBytes
	*e.samples++
	config := breakeven.Config{
		Server: server, Params: e.session.selection.params, Lengths: lengths, Repeats: breakEvenRepeats, Sample: *e.samples,
		Tier: e.tier, Flush: e.flush, Progress: e.session.progress.show,
	}
	if e.baseline != nil {
		computing, err := e.baseline.start()
		if err != nil {
			b.Fatal(err)
		}
		config.Recompute = computing.Client
	}
	timed := timer(b, e.session.inProcess())
	timed(true)
	curve, findings, err := breakeven.Measure(e.session.ctx, config)
	timed(false)
	e.session.progress.clear()
	if err == nil && len(findings) > 0 {
		err = findingsError(findings)
	}
	if err != nil {
		b.Fatal(err)
	}
	if e.result, err = curve.Fit(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// Report puts the last sample on the benchmark's line, keeps it for what is said
// at the end, and leaves its points and a picture in the artifacts.
func (e *BreakEven) Report(b *testing.B) {
	b.Helper()
	s, r := e.session, e.result
	if r.Tokens > 0 {
		b.ReportMetric(float64(r.Tokens), metric.BreakEven)
	}
	b.ReportMetric(1e9*r.Load.PerToken, metric.LoadToken)
	b.ReportMetric(1e9*r.Recompute.PerToken, metric.RecomputeToken)
	if tax, ok := r.ColdTax(); ok {
		b.ReportMetric(100*tax, metric.ColdTax)
	}
	said := breakEvenLine{name: fmt.Sprintf("%s, %s", e.shared.row.Name(), tierName(e.tier)), result: r}
	if e.tokenBytes > 0 {
		var err error
		if said.roofline, err = s.measureRoofline(e.tokenBytes * e.block); err != nil {
			b.Fatal(err)
		}
		said.predicted = r.Predicted(float64(e.tokenBytes), said.roofline.bytesPerSecond)
		b.ReportMetric(float64(said.predicted), metric.RooflineBreakEven)
	}
	s.measured = true
	s.breakEven = append(s.breakEven, said)
	if s.artifacts != nil {
		if err := said.keep(filepath.Join(s.artifacts.Dir, "break-even"), float64(e.tokenBytes)); err != nil {
			b.Fatal(err)
		}
	}
}

// keep writes the points and fits, and a picture of them.
func (l breakEvenLine) keep(dir string, tokenBytes float64) error {
	plot := breakeven.Plot{Title: "break-even of " + l.name, Result: l.result}
	if l.roofline.bytesPerSecond > 0 {
		transfer := breakeven.Transfer(tokenBytes, l.roofline.bytesPerSecond)
		plot.Predicted, plot.Rate = &transfer, l.roofline.String()
	}
	text, err := json.MarshalIndent(map[string]any{
		"result": l.result, "roofline": l.roofline.name, "roofline_bytes_per_s": l.roofline.bytesPerSecond, "roofline_break_even_tokens": l.predicted,
	}, "", " ")
	if err != nil {
		return fmt.Errorf("encoding a break-even: %w", err)
	}
	name := filepath.Join(dir, metric.Slug(l.name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	if err := os.WriteFile(name+".json", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	if err := os.WriteFile(name+".svg", []byte(breakeven.SVG(plot)), 0o644); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	return nil
}

// printBreakEven says from where a hit pays, as comment lines that benchstat
// passes over.
func printBreakEven(w io.Writer, lines []breakEvenLine) {
	for _, l := range lines {
		r := l.result
		fmt.Fprintf(w, "# on this machine %s (%s): computing takes %.3g µs a token, loading %.3g ms and %.3g µs a token",
			r, l.name, 1e6*r.Recompute.PerToken, 1e3*r.Load.Fixed, 1e6*r.Load.PerToken)
		if tax, ok := r.ColdTax(); ok {
			fmt.Fprintf(w, "; cold tax %+.0f%%", 100*tax)
		}
		if l.roofline.bytesPerSecond > 0 {
			fmt.Fprintf(w, "; the transfer alone (%s) would pay from %d", l.roofline, l.predicted)
		}
		fmt.Fprintln(w)
	}
}
