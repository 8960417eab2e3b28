package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Result is one cycle: both passes over one plan and what comparing them
// shows.
type Result struct {
	Cycle      int
	Upload     row.Upload // of rows whose documents are stored apart from the requests
	Cold, Warm Pass
	Reference  Pass // recomputes what the warm pass asked, where the cold pass asked something else
	Comparison verdict.Comparison
	Verdict    verdict.Verdict
	KV         row.KVReport // of rows whose delivered KV can be looked at
	Labels     []row.Label
	Findings   []row.Finding
	Client     *ClientError     // of the client that measured; nil: not known
	Repro      string           // the directory from which it can be asked again; empty: none
	External   bool             // somebody else sent the load: no usage, no token ids
	Record     artifact.Results // of a cycle that is kept and went to its end
}

// Grade is what the numbers of the cycle are worth before the proof is
// considered: invalid with any finding, observed where a witness is missing
// that the row does not require, where a cache had nothing to return, or where
// somebody else's client does not tell enough.
func (r Result) Grade() verdict.Grade {
	if len(r.Findings) > 0 {
		return verdict.Invalid
	}
	unproven := []row.Label{row.NoHits, row.SharedServer, row.SettleUnseen}
	if r.External || slices.ContainsFunc(unproven, func(l row.Label) bool { return slices.Contains(r.Labels, l) }) {
		return verdict.Observed
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
	return c.run(ctx, &cycle{
		Cell: c, params: params, minimum: 1,
		record: c.config.Artifacts.Cycle(fmt.Sprintf("cycle-%d", number)),
	})
}

// A cycle is one run over one plan.
type cycle struct {
	*Cell
	params   fixtures.Params
	proof    bool
	logprobs int // top logprobs to ask for
	minimum  int // compared tokens that a request needs
	record   *artifact.Cycle

	plan   fixtures.Plan
	cache  *oracles
	last   map[string]row.Snapshot // after the pass before, if nothing was sent since
	result Result
}

// run makes the plan, runs both passes over it and keeps what they showed.
func (c *Cell) run(ctx context.Context, y *cycle) (Result, []row.Finding, error) {
	y.result.Cycle = y.params.Cycle
	if err := y.planned(); err != nil {
		return y.result, nil, err
	}
	err := y.passes(ctx)
	if err == nil {
		err = y.keepFindings()
	}
	if err == nil {
		err = ctx.Err()
	}
	return y.result, y.result.Findings, err
}

// planned makes the plan and the oracles.
func (y *cycle) planned() error {
	plan, err := y.config.Workload.Plan(y.params)
	if err != nil {
		return fmt.Errorf("planning %s: %w", y.config.Workload.Name, err)
	}
	if y.proof && !plan.HasTurns() { // whose prompts are as long as the answers make them
		lengthen(plan.Requests, y.params.Context)
		lengthen(plan.Warm, y.params.Context)
	}
	y.plan, y.cache = plan, y.oracles()
	return nil
}

// passes stops at the first phase that cannot be built upon: a warm pass over
// a plan whose cold pass failed would only repeat its findings.
func (y *cycle) passes(ctx context.Context) (err error) {
	if err := y.goCold(ctx); err != nil || len(y.result.Findings) > 0 {
		return err
	}
	if y.server.Upload != nil {
		if err := y.upload(ctx); err != nil || len(y.result.Findings) > 0 {
			return err
		}
	}
	if y.result.Cold, err = y.pass(ctx, "cold", y.plan); err != nil || y.result.Cold.failed() {
		return err
	}
	y.plan = y.result.Cold.Plan // with the answers that conversations went on with
	y.found(y.config.Answers.cold(y.config, y.server.Row, y.params.Cycle, y.result.Cold)...)
	shown := len(y.result.Findings)
	if err := y.needControl(ctx); err != nil || len(y.result.Findings) > shown {
		return err
	}
	y.cache.store(y.plan)
	if y.result.Warm, err = y.pass(ctx, "warm", y.plan.Again()); err != nil || y.result.Warm.failed() {
		return err
	}
	y.cache.store(y.plan.Again())
	y.label()
	if y.server.KVCheck != nil {
		if err := y.checkKV(ctx); err != nil || len(y.result.Findings) > 0 {
			return err
		}
	}
	against := y.result.Cold
	if y.plan.Warm != nil && y.canRecompute() {
		if y.result.Reference, err = y.reference(ctx); err != nil || y.result.Reference.failed() {
			return err
		}
		against = y.result.Reference
	}
	if y.result.Verdict = verdict.Undecided; y.plan.Warm == nil || y.canRecompute() { // else nothing was asked twice
		y.compare(against)
	}
	if y.proof || y.record == nil {
		return nil
	}
	y.result.Record = y.results()
	return y.record.WriteResults(y.result.Record)
}

// upload stores the documents of the plan, where that is not what requests do.
func (y *cycle) upload(ctx context.Context) (err error) {
	y.config.Progress(fmt.Sprintf("%s %s upload", y.server.Row, y.config.Workload.Name))
	uploading, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	y.result.Upload, err = y.server.Upload(uploading, y.requests("upload", y.plan))
	if err != nil && ctx.Err() == nil {
		y.found(row.Finding{
			Code: row.RequestFailed, Phase: "upload", Evidence: err.Error(),
			Advice: "documents must be stored before anything can reuse them: look at the cache server's log",
		})
		return nil
	}
	return ctx.Err()
}

// reference answers the warm pass's questions without the cache, for plans
// whose cold pass asked others. Nobody's time is taken.
func (y *cycle) reference(ctx context.Context) (Pass, error) {
	plan := y.plan.Again()
	switch {
	case !y.config.Reuse || y.config.SkipReuse:
	case !y.config.Reset && y.config.Salts:
		plan = salted(plan)
	case !y.cold(ctx):
		return Pass{}, ctx.Err()
	}
	y.cache = newOracles(y.server, y.config.Concurrency)
	return y.pass(ctx, "reference", plan)
}

// canRecompute says that the row can answer without what it has cached.
func (c *Cell) canRecompute() bool {
	is := c.config
	return !is.Reuse || is.SkipReuse || is.Reset || is.Salts
}

// salted is a plan whose requests share nothing with those that have no salt.
func salted(plan fixtures.Plan) fixtures.Plan {
	plan.Requests = slices.Clone(plan.Requests)
	for i := range plan.Requests {
		plan.Requests[i].Salt = "reference"
	}
	return plan
}

// compare holds the warm answers against those that were computed in full.
func (y *cycle) compare(against Pass) {
	y.result.Comparison = verdict.CompareWithin(against.Timelines, y.result.Warm.Timelines, y.rounding())
	if y.config.Lossy {
		y.result.Verdict = verdict.Lossy
		return
	}
	v, found := verdict.Judge(y.result.Comparison, y.judging())
	y.result.Verdict = v
	y.found(found...)
}

// label notes what is worth knowing about the numbers and no fault.
func (y *cycle) label() {
	if y.server.Shared {
		y.result.Labels = append(y.result.Labels, row.SharedServer)
	}
	if y.server.Readable != nil {
		y.result.Labels = append(y.result.Labels, row.SettleUnseen)
	}
	if y.config.Reuse && y.result.Warm.HitTokens == 0 && !y.result.Warm.HitsUnknown {
		y.result.Labels = append(y.result.Labels, row.NoHits)
	}
	if tokens, tiers := y.result.Warm.TierTokens[row.L2]; tiers && tokens == 0 {
		y.result.Labels = append(y.result.Labels, row.NothingFromL2)
	}
	if y.result.Cold.Anatomy.disagrees() || y.result.Warm.Anatomy.disagrees() {
		y.result.Labels = append(y.result.Labels, row.TimeDisagrees)
	}
	if y.result.Warm.Offered > 0 && (queueDominated(y.result.Cold.Timelines) || queueDominated(y.result.Warm.Timelines)) {
		y.result.Labels = append(y.result.Labels, row.QueueDominated)
	}
}

func (y *cycle) found(findings ...row.Finding) {
	y.result.Findings = append(y.result.Findings, findings...)
}

// keepFindings leaves the findings and, for the requests that they name, what
// is needed to ask again.
func (y *cycle) keepFindings() error {
	if len(y.result.Findings) > 0 {
		if err := y.record.WriteReplay(y.replayable()); err != nil {
			return err
		}
		y.result.Repro = y.record.Repro()
	}
	for _, f := range y.result.Findings {
		if err := y.record.AppendFinding(f); err != nil {
			return err
		}
		if err := y.record.WriteRepro(y.repro(f)); err != nil {
			return err
		}
	}
	return nil
}
