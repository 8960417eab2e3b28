package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// Explain is what a person should know about a cycle that showed something, in
// one paragraph: what was found, what was expected, what each witness saw, why
// that may be and what to try. repro is where it can be asked again; empty:
// nothing was kept.
func Explain(result Result, repro string) string {
	if len(result.Findings) == 0 {
		return ""
	}
	var b strings.Builder
	first := result.Findings[0]
	fmt.Fprintf(&b, "invalid: %s\n", counted(result.Findings))
	fmt.Fprintf(&b, "  first found: %s", first.Code)
	if first.Request != "" {
		fmt.Fprintf(&b, ", request %s", first.Request)
	}
	fmt.Fprintf(&b, ", phase %s: %s\n", first.Phase, first.Evidence)
	if pass, ok := result.pass(first.Phase); ok {
		fmt.Fprintf(&b, "  expected: %s\n", expected(pass))
		if lines := disagreement(pass.Witnesses); lines != "" {
			fmt.Fprintf(&b, "  seen by the witnesses of the %s pass:\n%s", pass.Phase, lines)
		} else if len(pass.Witnesses) > 0 {
			fmt.Fprintf(&b, "  seen: %s\n", agreement(pass.Witnesses))
		}
	}
	fmt.Fprintf(&b, "  likely: %s\n", verdict.Causes(first.Code))
	if first.Advice != "" {
		fmt.Fprintf(&b, "  try: %s\n", first.Advice)
	}
	if repro != "" {
		fmt.Fprintf(&b, "  again: go run ./cmd/kvproof replay %s\n", repro)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// counted lists the codes in the order in which they were found.
func counted(findings []row.Finding) string {
	var order []row.Code
	count := make(map[row.Code]int)
	for _, f := range findings {
		if count[f.Code]++; count[f.Code] == 1 {
			order = append(order, f.Code)
		}
	}
	parts := make([]string, len(order))
	for i, code := range order {
		if parts[i] = string(code); count[code] > 1 {
			parts[i] = fmt.Sprintf("%d × %s", count[code], code)
		}
	}
	return strings.Join(parts, ", ")
}

// pass is the pass of that phase.
func (r Result) pass(phase string) (Pass, bool) {
	for _, p := range []Pass{r.Cold, r.Warm, r.Reference} {
		if p.Phase == phase {
			return p, true
		}
	}
	return Pass{}, false
}

func expected(p Pass) string {
	s := fmt.Sprintf("%s of %d prompt tokens from the cache in the %s pass", p.Expected.Total, p.PromptTokens, p.Phase)
	if p.Phase == "warm" {
		s += ", and the answers of the cold pass"
	}
	return s
}

// disagreement is the table of the witnesses where they do not all agree.
func disagreement(lines []verdict.Line) string {
	agree := func(l verdict.Line) bool {
		return l.Outcome == verdict.Agrees || l.Outcome == verdict.Unknown && !l.Required
	}
	if len(lines) == 0 || !slices.ContainsFunc(lines, func(l verdict.Line) bool { return !agree(l) }) {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(verdict.Table(lines)) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// agreement says in a line what all witnesses saw.
func agreement(lines []verdict.Line) string {
	parts := make([]string, len(lines))
	for i, l := range lines {
		parts[i] = fmt.Sprintf("%s %v", l.Witness, l.Hits)
		if l.State != row.Known {
			parts[i] = l.Witness + " unknown"
		}
	}
	return "hit tokens by " + strings.Join(parts, ", ") + ": all agree"
}
