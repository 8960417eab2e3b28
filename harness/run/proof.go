package run

import (
	"context"

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
	logprobs := 0
	if c.config.Logprobs {
		logprobs = proofLogprobs
	}
	timed := c.config.Timed
	c.config.Timed = func(bool) {} // nobody's numbers
	defer func() { c.config.Timed = timed }()

	result, findings, err := c.passes(ctx, proofCycle, params, logprobs, "proof")
	proof := Proof{
		Result: result, Verdict: result.Verdict,
		Grade: verdict.Worst(result.Grade(), verdict.GradeComparison(result.Verdict, result.Comparison)),
	}
	if err != nil {
		return proof, findings, err
	}
	return proof, findings, c.config.Artifacts.Cycle("proof").WriteProof(map[string]any{
		"verdict": proof.Verdict, "grade": proof.Grade, "comparison": result.Comparison,
	})
}

// lengthen makes outputs long enough to be called identical, where prompt and
// output fit into the context.
func lengthen(plan fixtures.Plan, context int) {
	for i := range plan.Requests {
		r := &plan.Requests[i]
		r.Output = max(r.Output, min(proofOutput, context-len(r.Prompt)))
	}
}
