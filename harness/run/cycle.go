package run

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Result is one cycle: both passes over one plan and what comparing them
// shows.
type Result struct {
	Cycle      int
	Cold, Warm Pass
	Comparison verdict.Comparison
	Verdict    verdict.Verdict
	Findings   []row.Finding
}

// Grade is what the numbers of the cycle are worth before the proof is
// considered: invalid with any finding, observed where a witness is missing
// that the row does not require.
func (r Result) Grade() verdict.Grade {
	if len(r.Findings) > 0 {
		return verdict.Invalid
	}
	cold, _ := verdict.GradeWitnesses(r.Cold.Witnesses)
	warm, _ := verdict.GradeWitnesses(r.Warm.Witnesses)
	return verdict.Worst(cold, warm)
}

// Cycle runs cold, settle and warm over fresh content. The findings are also
// in the result. With an error the result holds what was done before it.
func (c *Cell) Cycle(ctx context.Context) (Result, []row.Finding, error) {
	number := c.cycle
	c.cycle++
	params := c.config.Params
	params.Cycle = number
	return c.passes(ctx, number, params, 0, fmt.Sprintf("cycle-%d", number))
}

// passes runs both passes over the plan of params and keeps what they showed.
func (c *Cell) passes(ctx context.Context, number int, params fixtures.Params, logprobs int, name string) (Result, []row.Finding, error) {
	result := Result{Cycle: number}
	plan, err := c.config.Workload.Plan(params)
	if err != nil {
		return result, nil, fmt.Errorf("planning %s: %w", c.config.Workload.Name, err)
	}
	if number == proofCycle {
		lengthen(plan, params.Context)
	}
	record := c.config.Artifacts.Cycle(name)
	err = c.coldAndWarm(ctx, &result, plan, params, logprobs, record)
	if err == nil {
		err = c.record(record, plan, &result)
	}
	if err == nil {
		err = ctx.Err()
	}
	return result, result.Findings, err
}

// coldAndWarm stops at the first phase that cannot be built upon: a warm pass
// over a plan whose cold pass failed would only repeat its findings.
func (c *Cell) coldAndWarm(ctx context.Context, result *Result, plan fixtures.Plan, params fixtures.Params, logprobs int, record *artifact.Cycle) (err error) {
	if result.Findings, err = c.goCold(ctx, params); err != nil || len(result.Findings) > 0 {
		return err
	}
	cache := newOracles(c.server)
	result.Cold, err = c.pass(ctx, "cold", result.Cycle, plan, cache, logprobs, record)
	result.Findings = append(result.Findings, result.Cold.Findings...)
	if err != nil || result.Cold.failed() {
		return err
	}
	cache.store(plan)
	result.Warm, err = c.pass(ctx, "warm", result.Cycle, plan, cache, logprobs, record)
	result.Findings = append(result.Findings, result.Warm.Findings...)
	if err != nil || result.Warm.failed() {
		return err
	}
	result.Comparison = verdict.Compare(result.Cold.Timelines, result.Warm.Timelines)
	minimum := 1
	if logprobs > 0 {
		minimum = proofMinimum
	}
	var found []row.Finding
	result.Verdict, found = verdict.Judge(result.Comparison, verdict.Options{
		MinTokens: minimum, Exact: c.config.Exact, Logprobs: logprobs > 0, Phase: "warm",
	})
	result.Findings = append(result.Findings, found...)
	return nil
}

// goCold makes the cache empty and, where the row promises that it is, proves
// it with a sacrificial prompt: cached before the reset, absent after it.
func (c *Cell) goCold(ctx context.Context, params fixtures.Params) ([]row.Finding, error) {
	if !c.config.Reuse {
		return nil, ctx.Err()
	}
	if !c.config.Reset {
		return nil, c.server.Cache.Cold(ctx)
	}
	prompt := fixtures.Sacrificial(params)
	ask := func(step string) (int, []row.Finding) {
		request := row.Request{ID: "sacrificial-" + step, Prompt: prompt, MaxTokens: 1, IgnoreEOS: true}
		got := c.server.Client.Do(ctx, request)
		found := verdict.CheckRequest("reset", request, got)
		cached, ok := got.Cached()
		if len(found) == 0 && !ok {
			found = append(found, row.Finding{
				Code: row.WitnessMissing, Phase: "reset", Request: request.ID,
				Evidence: "usage does not say how many prompt tokens were cached",
				Advice:   "without it a reset cannot be proved; switch prompt-token details on at the server",
			})
		}
		return cached, found
	}

	for _, step := range []string{"store", "load"} {
		cached, found := ask(step)
		if len(found) > 0 {
			return found, ctx.Err()
		}
		if err := settle(ctx, c.server); err != nil {
			return []row.Finding{settleFinding("reset", err)}, ctx.Err()
		}
		want := c.server.Law.Returned(len(prompt), len(prompt)/c.server.Law.Unit*c.server.Law.Unit)
		if step == "load" && cached != want {
			code := row.HitBelowOracle
			if cached > want {
				code = row.HitAboveOracle
			}
			return []row.Finding{{
				Code: code, Phase: "reset", Request: "sacrificial-load",
				Evidence: fmt.Sprintf("a prompt of %d tokens that had just been stored was answered with %d cached tokens, %s gives %d", len(prompt), cached, c.server.Law.Name, want),
				Advice:   "the cache does not return what it was given, so no reset can be proved on it",
			}}, ctx.Err()
		}
	}

	reset, cancel := context.WithTimeout(ctx, c.config.ResetTimeout)
	defer cancel()
	if err := c.server.Cache.Cold(reset); err != nil {
		return []row.Finding{{
			Code: row.ResetNotHonoured, Phase: "reset", Evidence: err.Error(),
			Advice: "a cold pass needs an empty cache: free the blocks in use, or restart the server",
		}}, ctx.Err()
	}
	cached, found := ask("after-reset")
	if len(found) == 0 && cached != 0 {
		found = append(found, row.Finding{
			Code: row.ResetNotHonoured, Phase: "reset", Request: "sacrificial-after-reset",
			Evidence: fmt.Sprintf("the reset was acknowledged, yet %d of %d tokens of a prompt cached before it still hit", cached, len(prompt)),
			Advice:   "some tier was not cleared (vLLM leaves a connector's tier alone unless reset_external=true)",
		})
	}
	if len(found) > 0 {
		return found, ctx.Err()
	}
	if err := settle(ctx, c.server); err != nil {
		return []row.Finding{settleFinding("reset", err)}, ctx.Err()
	}
	return nil, ctx.Err()
}

func settleFinding(phase string, err error) row.Finding {
	return row.Finding{
		Code: row.Stalled, Phase: phase, Evidence: err.Error(),
		Advice: "look at the store's queue in its status; a warm pass before stores are done measures nothing",
	}
}

// record leaves the findings and, for the requests that they name, what is
// needed to ask again.
func (c *Cell) record(to *artifact.Cycle, plan fixtures.Plan, result *Result) error {
	for _, f := range result.Findings {
		if err := to.AppendFinding(f); err != nil {
			return err
		}
		if err := to.WriteRepro(c.repro(f, plan, result)); err != nil {
			return err
		}
	}
	return nil
}
