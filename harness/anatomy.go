package harness

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kvproof/kvproof/harness/host"
	"github.com/kvproof/kvproof/harness/run"
)

// parts of the time to first token, in the order in which they pass.
var anatomyParts = []struct {
	name string
	of   func(run.Anatomy) *float64
}{
	{"client queue", func(a run.Anatomy) *float64 { return &a.ClientQueue }},
	{"connect", func(a run.Anatomy) *float64 { return &a.Connect }},
	{"server queue", func(a run.Anatomy) *float64 { return a.ServerQueue }},
	{"KV load", func(a run.Anatomy) *float64 { return a.KVLoad }},
	{"prefill", func(a run.Anatomy) *float64 { return a.Prefill }},
	{"first chunk", func(a run.Anatomy) *float64 { return &a.FirstChunk }},
	{"= TTFT", func(a run.Anatomy) *float64 { return &a.TTFT }},
}

// printAnatomy shows where the time to first token went in the warm passes, as
// means over all requests. A dash is a part that nobody tells.
func printAnatomy(w io.Writer, rows []*tableRow) {
	shown := rows[:0:0]
	for _, r := range rows {
		if r.failure == "" && len(r.anatomies) > 0 {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return
	}
	roofline := 0.0
	t := tabwriter.NewWriter(&commentWriter{w: w}, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "warm TTFT\tworkload\t")
	for _, p := range anatomyParts {
		fmt.Fprintf(t, "%s\t", p.name)
	}
	fmt.Fprintln(t, "load GB/s\tof copying\t")
	for _, r := range shown {
		fmt.Fprintf(t, "%s\t%s\t", r.backend, r.workload)
		for _, p := range anatomyParts {
			text := "-"
			if mean, known := meanPart(r.anatomies, p.of); known {
				text = fmt.Sprintf("%.2f ms", mean)
			}
			fmt.Fprintf(t, "%s\t", text)
		}
		rate, known := meanPart(r.anatomies, func(a run.Anatomy) *float64 { return a.LoadBytesPerSecond })
		if !known {
			fmt.Fprintln(t, "-\t-\t")
			continue
		}
		if roofline == 0 {
			roofline = host.CopyRate()
		}
		fmt.Fprintf(t, "%.2f\t%.0f%%\t\n", rate/1e9, 100*rate/roofline)
	}
	t.Flush()
}

// meanPart is the mean of a part over passes, by requests; false where one of
// them does not know it.
func meanPart(anatomies []run.Anatomy, of func(run.Anatomy) *float64) (mean float64, known bool) {
	requests := 0
	for _, a := range anatomies {
		part := of(a)
		if part == nil {
			return 0, false
		}
		mean += *part * float64(a.Requests)
		requests += a.Requests
	}
	return mean / float64(max(1, requests)), requests > 0
}
