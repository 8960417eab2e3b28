package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Pass is the requests of a plan sent once, with everything that was seen
// meanwhile.
type Pass struct {
	Phase        string        // cold, warm, reference
	Plan         fixtures.Plan // as it was sent
	Requests     []row.Request
	Timelines    []row.Timeline
	Elapsed      time.Duration // over the requests only
	Offered      float64       // requests per second of the schedule; 0: a closed loop
	Expected     fixtures.Expectation
	HitTokens    int              // Σ cached tokens of usage, or of a counter under its law where usage does not tell
	HitsUnknown  bool             // neither tells
	TierTokens   map[row.Tier]int // by tier, of rows that have tiers
	PromptTokens int
	Witnesses    []verdict.Line
	Anatomy      *Anatomy // where the time to first token went; nil: not known
	Findings     []row.Finding

	record  artifact.Pass
	metrics artifact.PhaseMetrics
}

// HitPercent is the share of the prompt tokens that usage reports as cached.
func (p Pass) HitPercent() float64 {
	if p.Accounted() == 0 {
		return 0
	}
	return 100 * float64(p.HitTokens) / float64(p.Accounted())
}

// Accounted is how many prompt tokens the hits are a part of; 0 where nobody
// told the hits, which then are no 0.
func (p Pass) Accounted() int {
	if p.HitsUnknown {
		return 0
	}
	return p.PromptTokens
}

// skipsReuse says that the requests of the pass go past the cache: it is asked
// for nothing and must return nothing.
func (p Pass) skipsReuse() bool { return len(p.Requests) > 0 && p.Requests[0].SkipReuse }

// failed says that some request did not end properly, so that nothing can be
// compared with this pass.
func (p Pass) failed() bool {
	for _, t := range p.Timelines {
		if t.Status != row.OK {
			return true
		}
	}
	return len(p.Timelines) == 0
}

// pass sends a plan once: counters, requests, settle, counters, checks. The
// findings are the pass's and the cycle's.
func (y *cycle) pass(ctx context.Context, phase string, plan fixtures.Plan) (p Pass, err error) {
	planned := plan.Requests
	if phase == "cold" && plan.HasTurns() {
		plan = plan.Clone() // answers go into it while requests end
	}
	p = Pass{Phase: phase, Requests: y.requests(phase, plan), TierTokens: make(map[row.Tier]int)}
	defer func() { y.found(p.Findings...) }()
	before, found := y.snapshots(ctx, phase)
	p.Findings = append(p.Findings, found...)
	if err := ctx.Err(); err != nil || len(found) > 0 {
		return p, err
	}
	if between := y.between(phase, before); len(between) > 0 {
		p.Findings = append(p.Findings, between...)
		return p, nil
	}

	var write error
	done := 0
	y.timed(phase, true)
	driver := load.Driver{Client: y.server.Client, Concurrency: y.config.Concurrency, Observe: func(i int, t row.Timeline) {
		done++
		y.config.Progress(fmt.Sprintf("%s %s %s %d/%d", y.server.Row, plan.Workload, phase, done, len(p.Requests)))
		write = errors.Join(write, y.record.AppendRequest(phase, artifact.NewRequest(plan.Workload, planned[i], t)))
	}}
	y.takeTurns(&driver, &p, plan)
	if y.config.Arrivals != nil && y.measured(phase) {
		driver.Schedule = y.config.Arrivals(plan.Requests)
		p.Offered = driver.Schedule.Rate()
	}
	timelines, report, refused := driver.Run(ctx, p.Requests)
	y.timed(phase, false)
	p.Timelines, p.Elapsed = timelines, report.End.Sub(report.Start)
	p.Plan, p.PromptTokens = plan, plan.PromptTokens()
	p.Expected = y.expect(&p, y.server.Law, plan)
	if err := errors.Join(ctx.Err(), refused, write); err != nil {
		return p, err
	}

	if err := quiet(ctx, y.server); err != nil && ctx.Err() == nil {
		p.Findings = append(p.Findings, settleFinding(phase, err))
	}
	after, found := y.snapshots(ctx, phase)
	y.last = after
	if y.server.Readable != nil {
		y.last = nil // what it asks moves the counters
		if err := readable(ctx, y.server); err != nil && ctx.Err() == nil {
			p.Findings = append(p.Findings, settleFinding(phase, err))
		}
	}
	p.Findings = append(p.Findings, y.autopsy(ctx, y.check(&p), found)...)
	p.Findings = append(p.Findings, found...)
	if len(found) == 0 {
		p.Findings = append(p.Findings, y.reconcile(&p, plan, before, after)...)
		p.Findings = append(p.Findings, y.worked(&p, before, after)...)
	}
	if len(found) == 0 {
		p.Anatomy = y.anatomy(p, before, after)
	}
	p.record = y.passRecord(&p, report, before, after)
	if err := y.record.WritePass(phase, p.record); err != nil {
		return p, err
	}
	return p, ctx.Err()
}

// timed brackets the requests of a pass for whoever measures.
func (y *cycle) timed(phase string, running bool) {
	if y.measured(phase) {
		y.config.Timed(running)
	}
}

// measured says that a pass is somebody's numbers: the cold and the warm one of
// a cycle are. The others need no schedule, either.
func (y *cycle) measured(phase string) bool {
	return !y.proof && (phase == "cold" || phase == "warm")
}

// check looks at each request by itself and at the load as a whole.
func (c *Cell) check(p *Pass) []row.Finding {
	var findings []row.Finding
	for i, t := range p.Timelines {
		found := verdict.CheckRequest(p.Phase, p.Requests[i], t)
		if len(found) == 0 {
			found = append(verdict.CheckTokens(p.Phase, t, c.answerVocab()),
				verdict.CheckHit(p.Phase, t, p.Expected.Requests[i], c.server.Law.Name)...)
		}
		findings = append(findings, found...)
		if cached, ok := t.Cached(); ok {
			p.HitTokens += cached
		}
	}
	if p.Offered > 0 {
		return append(findings, onSchedule(p.Phase, p.Timelines, c.config.Replay)...)
	}
	return append(findings, delivered(p.Phase, p.Timelines, p.Elapsed, min(p.Plan.Width(), c.config.Concurrency))...)
}

// snapshots reads every probe of the server. A probe that does not answer is
// unknown: the cycle cannot be judged.
func (c *Cell) snapshots(ctx context.Context, phase string) (map[string]row.Snapshot, []row.Finding) {
	read := make(map[string]row.Snapshot, len(c.server.Probes))
	var findings []row.Finding
	for _, p := range c.server.Probes {
		snapshot, err := p.Snapshot(ctx)
		if err != nil {
			findings = append(findings, row.Finding{
				Code: row.WitnessMissing, Phase: phase,
				Evidence: fmt.Sprintf("the counters of %s cannot be read: %v", p.Name(), err),
				Advice:   "a missing witness is unknown, never 0; check that the server still lives",
			})
			continue
		}
		read[p.Name()] = snapshot
	}
	return read, findings
}

func (c *Cell) passRecord(p *Pass, report load.Report, before, after map[string]row.Snapshot) artifact.Pass {
	metrics, ratios := Metrics(before, after)
	p.metrics = metrics
	summary := artifact.Summarize(p.Timelines, p.Elapsed, report.Peak)
	if p.Offered == 0 {
		summary.Occupy(c.config.Concurrency)
	}
	summary.BackendHitRate = ratios.BackendServerCacheHitRate
	summary.ExternalHitRate = ratios.Candidates["vllm_external_prefix"].Rate
	if p.Offered > 0 && !math.IsInf(p.Offered, 1) {
		summary.OfferedReqPerS = &p.Offered
	}
	return artifact.Pass{
		Summary: summary, Anatomy: p.Anatomy, Witnesses: p.Witnesses, HitRatios: ratios, Counters: counterDeltas(before, after),
		Expected: artifact.Expected{
			Law: c.server.Law.Name, MinHitTokens: p.Expected.Total.Min, MaxHitTokens: p.Expected.Total.Max,
			PromptTokens: p.PromptTokens,
		},
	}
}

// requests are a plan's prompts as they are sent in a phase. Ids name the
// phase, so that a server's log can be read. The cold pass of a row whose
// documents are stored already, and a reference, go past the cache.
func (y *cycle) requests(phase string, plan fixtures.Plan) []row.Request {
	id := fmt.Sprintf("%s-%s-%d", y.server.Row, plan.Workload, y.params.Cycle)
	sent := requests(id, phase, plan.Requests, y.logprobs)
	for i := range sent {
		how := y.config.Sampling
		sent[i].Temperature, sent[i].TopP, sent[i].Seed = how.Temperature, how.TopP, how.Seed
		sent[i].SkipReuse = phase == "cold" && y.server.Upload != nil || (phase == "reference" || phase == recomputeArm) && y.config.SkipReuse
	}
	return sent
}

func requests(id, phase string, plan []fixtures.Request, logprobs int) []row.Request {
	out := make([]row.Request, len(plan))
	for i, r := range plan {
		out[i] = row.Request{
			ID:     fmt.Sprintf("%s-%s-%d", id, phase, r.Index),
			Prompt: r.Prompt, Parts: r.Parts, MaxTokens: r.Output, IgnoreEOS: true, Logprobs: logprobs,
			CacheSalt: r.Salt, Stop: r.Stop,
		}
	}
	return out
}

// answerVocab is what ids of answers lie below; 0: nobody knows.
func (c *Cell) answerVocab() int {
	if c.server.AnyVocab {
		return 0
	}
	return c.server.Vocab
}
