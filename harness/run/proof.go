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
	y := c.newProof("proof")
	result, findings, err := c.run(ctx, y)
	proof := Proof{Result: result, Verdict: result.Verdict, Grade: verdict.Worst(result.Grade(), y.proved())}
	if err != nil {
		return proof, findings, err
	}
	return proof, findings, y.record.WriteProof(y.proofRecord(proof))
}

// newProof prepares an untimed cycle over part of the plan, kept under name.
func (c *Cell) newProof(name string) *cycle {
	params := c.config.Params
	params.Cycle = proofCycle
	params.Requests = min(params.Requests, c.config.ProofRequests)
	y := &cycle{Cell: c, params: params, proof: true, minimum: proofMinimum, record: c.config.Artifacts.Cycle(name)}
	if c.config.Logprobs {
		y.logprobs = proofLogprobs
	}
	return y
}

// proofRecord is what the artifacts keep of a proof, with what its control
// shows beside it.
func (y *cycle) proofRecord(proof Proof) map[string]any {
	record := map[string]any{
		"verdict": proof.Verdict, "grade": proof.Grade, "comparison": proof.Result.Comparison, "kv": proof.Result.KV,
	}
	if y.control != nil {
		record["control"], record["noise"] = y.control, verdict.NoiseOf(y.control.all()...)
		record["logprob_shifts"] = verdict.CompareShifts(proof.Result.Comparison, y.control.nearest())
	}
	return record
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

// lengthen makes outputs long enough to be called identical, where prompt and
// output fit into the context.
func lengthen(requests []fixtures.Request, context int) {
	for i := range requests {
		r := &requests[i]
		r.Output = max(r.Output, min(proofOutput, context-len(r.Prompt)))
	}
}
