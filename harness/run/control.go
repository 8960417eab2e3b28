package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// The arms of a control, as phases.
const (
	recomputeArm = "recompute" // computed once more, without a cache
	localHitArm  = "local-hit" // from the engine's own prefix cache
)

// A Control is how outputs differ without a fault: the same plan, at the same
// concurrency, on the same engine, answered a second time.
type Control struct {
	Recompute *verdict.Comparison `json:"recompute"`
	LocalHit  *verdict.Comparison `json:"local_hit,omitempty"` // nil: the engine has no cache of its own
}

// all are the arms that there are; none for no control.
func (c *Control) all() (arms []verdict.Comparison) {
	if c == nil {
		return nil
	}
	for _, arm := range []*verdict.Comparison{c.Recompute, c.LocalHit} {
		if arm != nil {
			arms = append(arms, *arm)
		}
	}
	return arms
}

// nearest is the arm that is most like a hit.
func (c *Control) nearest() verdict.Comparison {
	if c.LocalHit != nil {
		return *c.LocalHit
	}
	return *c.Recompute
}

// Controls keep the controls of a run, for all rows that compute alike. They
// are safe for concurrent use.
type Controls struct {
	mu   sync.Mutex
	kept map[string]*Control
}

// fingerprint names what a control is good for: engine, model, block size, plan
// and concurrency.
func fingerprint(server *row.Server, c Config) string {
	p := c.Params
	p.Cycle, p.Requests = proofCycle, min(p.Requests, c.ProofRequests)
	return fmt.Sprintf("%v|%s|%s|%s|%s|%+v|%+v|%d", server.Exact, server.Facts["engine"], server.Facts["model"], server.Facts["model-fingerprint"], c.Workload.Name, p, c.Sampling, c.Concurrency)
}

func (c *Controls) get(key string) *Control {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[key]
}

func (c *Controls) keep(key string, control *Control) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = make(map[string]*Control)
	}
	c.kept[key] = control
}

// Control runs the arms on the cell's server, which is the engine alone: with
// its own prefix cache, which has to be resettable, or without any. It asks
// what a proof asks, untimed, and keeps the result for the proofs of all rows
// with the same fingerprint.
func (c *Cell) Control(ctx context.Context) (Control, []row.Finding, error) {
	y := c.newProof("control")
	control, err := y.arms(ctx)
	if err == nil {
		err = y.keepFindings()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || len(y.result.Findings) > 0 {
		return control, y.result.Findings, err
	}
	c.config.Controls.keep(fingerprint(c.server, c.config), &control)
	return control, nil, y.record.WriteProof(control)
}

func (y *cycle) arms(ctx context.Context) (control Control, err error) {
	if err := y.planned(); err != nil {
		return control, err
	}
	y.plan = y.plan.Again() // what warm passes ask
	if err := y.goCold(ctx); err != nil || len(y.result.Findings) > 0 {
		return control, err
	}
	if y.result.Cold, err = y.pass(ctx, "cold", y.plan); err != nil || y.result.Cold.failed() {
		return control, err
	}
	y.plan = y.result.Cold.Plan
	again, err := y.arm(ctx, recomputeArm, y.plan)
	if err != nil || len(y.result.Findings) > 0 {
		return control, err
	}
	recompute := verdict.CompareWithin(y.result.Cold.Timelines, again.Timelines, y.rounding())
	control.Recompute = &recompute
	if !y.config.Reuse {
		return control, nil
	}
	y.cache.store(y.plan)
	hit, err := y.pass(ctx, localHitArm, y.plan)
	if err != nil || len(y.result.Findings) > 0 {
		return control, err
	}
	y.found(verdict.RefuseControl(localHitArm, hit.Timelines, hit.Expected.Total)...)
	local := verdict.CompareWithin(y.result.Cold.Timelines, hit.Timelines, y.rounding())
	control.LocalHit = &local
	return control, nil
}

// arm answers a plan once more without what is cached of it.
func (y *cycle) arm(ctx context.Context, name string, plan fixtures.Plan) (Pass, error) {
	switch {
	case !y.config.Reuse || y.config.SkipReuse:
	case !y.config.Reset && y.config.Salts:
		plan = salted(plan)
	case !y.cold(ctx):
		return Pass{}, ctx.Err()
	default:
		y.cache = newOracles(y.server, y.config.Concurrency)
	}
	pass, err := y.pass(ctx, name, plan)
	if err == nil && !pass.failed() {
		y.found(verdict.RefuseControl(name, pass.Timelines, pass.Expected.Total)...)
	}
	return pass, err
}

// ownControl is the recompute arm on the row's own server, for a row whose
// control nobody ran before. It is nil where the row can neither empty its cache
// nor ask past it, or asks something else the second time.
func (y *cycle) ownControl(ctx context.Context) (*Control, error) {
	if y.config.Lossy || y.plan.Warm != nil || !y.canRecompute() {
		return nil, nil
	}
	again, err := y.arm(ctx, recomputeArm, y.plan)
	if err != nil || len(y.result.Findings) > 0 {
		return nil, err
	}
	recompute := verdict.CompareWithin(y.result.Cold.Timelines, again.Timelines, y.rounding())
	return &Control{Recompute: &recompute}, nil
}

// needControl makes the proof's control known to the cell, before the warm pass.
func (y *cycle) needControl(ctx context.Context) (err error) {
	if y.config.Exact || !y.proof || y.control != nil {
		return nil
	}
	if y.control = y.config.Controls.get(fingerprint(y.server, y.config)); y.control == nil {
		y.control, err = y.ownControl(ctx)
	}
	return err
}

// sums is how far apart, in nats, logprobs come of the same numbers added up in
// another order in float32: vLLM moves them by 2e-5 from a prompt in one piece to
// a hit, llama.cpp by 1e-5. Where bits are not promised that is no movement.
const sums = 1e-4

// rounding is the largest difference of logprobs that are equal, in nats.
func (y *cycle) rounding() float64 {
	if y.config.Exact {
		return y.server.Rounding
	}
	return max(y.server.Rounding, sums)
}

// judging says how the answers of the cycle are to be judged. A timed cycle has
// other prompts than the control.
func (y *cycle) judging() verdict.Options {
	return verdict.Options{
		MinTokens: y.minimum, Exact: y.config.Exact, Logprobs: y.logprobs > 0, Phase: "warm",
		Controls: y.control.all(), Hits: y.control != nil && y.control.LocalHit != nil, Unpaired: !y.proof,
	}
}
