package run

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Proof is an untimed cycle over part of the plan that compares logprobs
// too: KV with a low bit flipped, or with its tokens permuted, often leaves
// every token the same.
type Proof struct {
	Result  Result
	Verdict verdict.Verdict
	Grade   verdict.Grade
}

// Proof proves the cell once. Its content is outside every timed cycle.
func (c *Cell) Proof(ctx context.Context) (Proof, []row.Finding, error) {
	params := c.config.Params
	params.Cycle = proofCycle
	params.Requests = min(params.Requests, c.config.ProofRequests)
	y := &cycle{Cell: c, params: params, proof: true, minimum: proofMinimum, record: c.config.Artifacts.Cycle("proof")}
	if c.config.Logprobs {
		y.logprobs = proofLogprobs
	}
	timed := c.config.Timed
	c.config.Timed = func(bool) {} // nobody's numbers
	defer func() { c.config.Timed = timed }()

	result, findings, err := c.run(ctx, y)
	proof := Proof{Result: result, Verdict: result.Verdict, Grade: verdict.Worst(result.Grade(), y.proved())}
	if err != nil {
		return proof, findings, err
	}
	return proof, findings, y.record.WriteProof(map[string]any{
		"verdict": proof.Verdict, "grade": proof.Grade, "comparison": result.Comparison, "kv": result.KV,
	})
}

// proved is the grade that the comparison earns. A row that is lossy by design
// earns it through the KV that it was delivered.
func (y *cycle) proved() verdict.Grade {
	switch {
	case y.result.Verdict != verdict.Lossy:
		return verdict.GradeComparison(y.result.Verdict, y.result.Comparison)
	case y.result.KV.Checked > 0:
		return verdict.Proven
	default:
		return verdict.Observed
	}
}

// checked runs a pass while the KV that the cache delivers is compared with
// what the model computes, in the proof of rows that can be looked into.
func (y *cycle) checked(ctx context.Context, pass func() error) error {
	check := y.server.KVCheck
	if !y.proof || check == nil {
		return pass()
	}
	if err := check.Start(ctx); err != nil {
		return fmt.Errorf("starting the check of delivered KV: %w", err)
	}
	passed := pass()
	report, err := check.Stop(context.WithoutCancel(ctx))
	switch {
	case passed != nil:
		return passed
	case err != nil:
		return fmt.Errorf("reading the check of delivered KV: %w", err)
	}
	y.result.KV = report
	if report.Damaged > 0 && len(report.Mismatches) > 0 {
		y.found(row.Finding{
			Code: row.KVDiffers, Phase: "warm",
			Evidence: fmt.Sprintf("%d of %d pieces of delivered KV are not what the model computes for their tokens: %s", report.Damaged, report.Checked, report.Mismatches[0]),
			Advice:   "the store returned damaged KV, another document's, or turned it to the wrong position",
		})
	} else if report.Tokens < y.result.Warm.HitTokens {
		y.found(row.Finding{
			Code: row.WitnessMissing, Phase: "warm",
			Evidence: fmt.Sprintf("%d tokens hit, but the delivered KV of %d was checked", y.result.Warm.HitTokens, report.Tokens),
			Advice:   "the hits came from somewhere else than the cache that is checked",
		})
	}
	return nil
}

// lengthen makes outputs long enough to be called identical, where prompt and
// output fit into the context.
func lengthen(requests []fixtures.Request, context int) {
	for i := range requests {
		r := &requests[i]
		r.Output = max(r.Output, min(proofOutput, context-len(r.Prompt)))
	}
}
