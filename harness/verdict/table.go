package verdict

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/kvproof/kvproof/harness/row"
)

// Table shows the witnesses of a pass as aligned text, a line each:
//
//	witness  hit tokens  expected  law               queries     outcome  source
//	usage    7168        7168      floor((P-1)/B)*B              agrees   …
//
// A witness that said nothing has "unknown" where its number would stand, and
// queries that are checked stand beside what the prompts have.
func Table(lines []Line) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "witness\thit tokens\texpected\tlaw\tqueries\toutcome\tsource")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Witness, l.hitsText(), l.Expected, l.Law, l.queriesText(), l.outcomeText(), l.Source)
	}
	_ = w.Flush() // into memory: it cannot fail
	return b.String()
}

func (l Line) hitsText() string {
	if l.State != row.Known {
		return "unknown"
	}
	return fmt.Sprint(l.Hits)
}

func (l Line) queriesText() string {
	switch {
	case l.ExpectedQueries <= 0:
		return "-"
	case l.State != row.Known:
		return "unknown"
	}
	return fmt.Sprintf("%v of %d", l.Queries, l.ExpectedQueries)
}

func (l Line) outcomeText() string {
	if l.Outcome == Unknown && !l.Required {
		return string(Unknown) + " (not required)"
	}
	return string(l.Outcome)
}
