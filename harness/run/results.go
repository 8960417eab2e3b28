package run

import (
	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// results is the cycle in the form of DaseR's results.json. Its baseline has
// one pass; here a row without a cache has a second one, as a control.
func (y *cycle) results() artifact.Results {
	first := "cold"
	if !y.config.Reuse {
		first = "baseline"
	}
	r := artifact.Results{
		Manifest: y.config.Manifest, Config: y.config.Prepared.WithSizes(y.config.Manifest),
		Result: map[string]artifact.Phase{
			first:  y.phase(y.result.Cold, y.plan.Requests),
			"warm": y.phase(y.result.Warm, y.plan.Again().Requests),
		},
		Correctness: y.correctness(),
	}
	if up := y.result.Upload; up.Documents > 0 {
		cold, took := r.Result[first], float64(up.Took.Microseconds())/1e3
		cold.Summary.UploadedDocuments, cold.Summary.UploadMS = up.Documents, &took
		r.Result[first] = cold
	}
	return r
}

func (y *cycle) phase(p Pass, asked []fixtures.Request) artifact.Phase {
	phase := artifact.Phase{Summary: p.record.Summary, Metrics: p.metrics}
	var answers [][]string
	var outputs []string
	for i, t := range p.Timelines {
		phase.Requests = append(phase.Requests, artifact.NewRequest(y.plan.Workload, asked[i], t).Result())
		if t.Status == row.OK {
			answers, outputs = append(answers, asked[i].Answers), append(outputs, t.Text)
		}
	}
	phase.Summary.AnswerAccuracy = artifact.AnswersContained(answers, outputs)
	return phase
}

// correctness is the comparison in the original's fields.
func (y *cycle) correctness() artifact.Correctness {
	compared := y.result.Comparison
	c := artifact.Correctness{
		Available: compared.Total > 0, Matches: compared.Matches, Total: compared.Total, Mismatches: compared.Total - compared.Matches,
		Details: []artifact.Mismatch{},
	}
	if rate, ok := compared.Rate(); ok {
		c.Accuracy = &rate
	} else {
		c.Reason = "the passes were not compared"
	}
	against := y.result.Cold.Timelines
	if y.plan.Warm != nil {
		against = y.result.Reference.Timelines
	}
	for _, pair := range compared.Pairs {
		if i := pair.Index; !pair.Match && i < len(against) && i < len(y.result.Warm.Timelines) {
			c.Details = append(c.Details, artifact.Mismatch{SampleID: i, Cold: against[i].Text, Warm: y.result.Warm.Timelines[i].Text})
		}
	}
	return c
}

// Metrics are the changes around a pass under the names of DaseR's runner.
func Metrics(before, after map[string]row.Snapshot) (artifact.PhaseMetrics, probe.Ratios) {
	var was, is any
	for name, snapshot := range after {
		if snapshot.Status != nil {
			was, is = before[name].Status, snapshot.Status
		}
	}
	ratios := probe.HitRatiosWithStatus(before, after, was, is)
	return artifact.PhaseMetrics{
		Engine:  artifact.Changes(before["engine"], after["engine"]),
		Backend: artifact.Changes(before["backend"], after["backend"]),
		Status:  is, HitRatios: ratios,
	}, ratios
}
