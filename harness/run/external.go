package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// A Loader sends a pass itself, with prompts of its own making that are the
// same in both passes of a cycle and others in the next.
type Loader interface {
	// Load sends the pass of a cycle and keeps what it wrote in dir, where
	// that is not empty.
	Load(ctx context.Context, cycle int, phase, dir string) (Loaded, error)
	// Compare compares the outputs of two passes.
	Compare(cold, warm Loaded) artifact.Correctness
	// Shared is how many tokens of each prompt all prompts have in common.
	Shared() int
}

// Loaded is what a loader says about a pass.
type Loaded struct {
	Timelines []row.Timeline // one per request, without ids of tokens
	Elapsed   time.Duration
	Summary   artifact.Summary
	Raw       any // of the loader, for Compare
}

// CycleWith is Cycle with somebody else's load. What is in the prompts is not
// known, so the oracle knows their lengths alone: a warm pass must hit all that
// the law gives for prompts that were stored, a cold one must not. Counters are
// the only witnesses, and texts are compared in place of token ids.
func (c *Cell) CycleWith(ctx context.Context, loader Loader) (Result, []row.Finding, error) {
	params := c.config.Params
	params.Cycle = c.cycle
	c.cycle++
	y := &cycle{Cell: c, params: params, record: c.config.Artifacts.Cycle(fmt.Sprintf("cycle-%d", params.Cycle)), minimum: 1, cache: c.oracles()}
	y.plan.Workload = c.config.Workload.Name
	y.result.Cycle, y.result.External = params.Cycle, true
	err := y.external(ctx, loader)
	if err == nil {
		err = y.keepFindings()
	}
	if err == nil {
		err = ctx.Err()
	}
	return y.result, y.result.Findings, err
}

func (y *cycle) external(ctx context.Context, loader Loader) error {
	if err := y.goCold(ctx); err != nil || len(y.result.Findings) > 0 {
		return err
	}
	first := "cold"
	if !y.config.Reuse {
		first = "baseline"
	}
	cold, err := y.externalPass(ctx, loader, "cold", first, &y.result.Cold)
	if err != nil || len(y.result.Findings) > 0 {
		return err
	}
	warm, err := y.externalPass(ctx, loader, "warm", "warm", &y.result.Warm)
	if err != nil || len(y.result.Findings) > 0 {
		return err
	}
	y.label()
	correct := loader.Compare(cold, warm)
	if y.result.Verdict = verdict.Undecided; correct.Available { // what is not there does not match
		y.compare(y.result.Cold)
	}
	if correct.LengthMismatch {
		y.found(row.Finding{
			Code: row.OutputDiffers, Phase: "warm", Evidence: fmt.Sprintf("the passes have texts of other numbers of requests, %d in all", correct.Total),
			Advice: "both passes must send the same prompts",
		})
	}
	y.result.Record = artifact.Results{
		Manifest: y.config.Manifest, Config: y.config.Prepared.WithSizes(y.config.Manifest), Correctness: correct,
		Result: map[string]artifact.Phase{
			first:  {Summary: y.result.Cold.record.Summary, Metrics: y.result.Cold.metrics},
			"warm": {Summary: y.result.Warm.record.Summary, Metrics: y.result.Warm.metrics},
		},
	}
	return y.record.WriteResults(y.result.Record)
}

// externalPass is pass with somebody else's load. file is the phase in the
// names of its files.
func (y *cycle) externalPass(ctx context.Context, loader Loader, phase, file string, p *Pass) (Loaded, error) {
	*p = Pass{Phase: phase, TierTokens: make(map[row.Tier]int)}
	defer func() { y.found(p.Findings...) }()
	y.config.Progress(fmt.Sprintf("%s %s %s", y.server.Row, y.config.Workload.Name, phase))
	before, found := y.snapshots(ctx, phase)
	p.Findings = append(p.Findings, found...)
	if err := ctx.Err(); err != nil || len(found) > 0 {
		return Loaded{}, err
	}
	y.timed(phase, true)
	loaded, err := loader.Load(ctx, y.params.Cycle, file, y.record.Dir())
	y.timed(phase, false)
	if err != nil {
		return loaded, err
	}
	p.Timelines, p.Elapsed = loaded.Timelines, loaded.Elapsed
	if err := quiet(ctx, y.server); err != nil && ctx.Err() == nil {
		p.Findings = append(p.Findings, settleFinding(phase, err))
	}
	after, found := y.snapshots(ctx, phase)
	p.Findings = append(p.Findings, found...)
	if err := readable(ctx, y.server); err != nil && ctx.Err() == nil {
		p.Findings = append(p.Findings, settleFinding(phase, err))
	}
	p.Findings = append(p.Findings, y.checkLoaded(p)...)
	if len(p.Findings) == 0 {
		p.Findings = append(p.Findings, y.counted(p, loader.Shared(), before, after)...)
	}
	p.record, p.metrics = y.loadedRecord(p, loaded.Summary, before, after)
	if err := y.record.WritePass(phase, p.record); err != nil {
		return loaded, err
	}
	return loaded, ctx.Err()
}

// checkLoaded looks at each request as far as the loader tells of it.
func (y *cycle) checkLoaded(p *Pass) []row.Finding {
	var findings []row.Finding
	for _, t := range p.Timelines {
		if t.Status != row.OK {
			findings = append(findings, row.Finding{
				Code: row.RequestFailed, Phase: p.Phase, Request: t.ID, Evidence: t.Err, Advice: "look at the loader's and the engine's log",
			})
			continue
		}
		p.PromptTokens += t.Usage.PromptTokens
	}
	if want := y.config.Params.Requests; len(p.Timelines) != want {
		findings = append(findings, row.Finding{
			Code: row.LoadNotDelivered, Phase: p.Phase, Evidence: fmt.Sprintf("%d requests were asked for, the loader tells of %d", want, len(p.Timelines)),
			Advice: "look at the loader's log",
		})
	}
	return findings
}

// counted lays the counters beside what the lengths of the prompts give. The
// prompts of a cold pass share what they were told to; anything else they share
// by chance, so half of what is left is taken for a cache that was not cold.
func (y *cycle) counted(p *Pass, shared int, before, after map[string]row.Snapshot) []row.Finding {
	var readings []verdict.Reading
	p.HitsUnknown = true // usage is the loader's, which does not tell
	for _, w := range y.server.Witnesses {
		if w.Tier != "" {
			continue // which tier holds what follows from the prompts
		}
		count := w.Count(before[w.Probe], after[w.Probe])
		reading := verdict.Reading{
			Witness: w.Name, Source: fmt.Sprintf("%s of %s", w.Source, w.Probe), Law: w.Law.Name,
			Hits: count.Hits, State: count.State, Required: w.Required && !y.server.Shared,
		}
		for _, t := range p.Timelines {
			all := repeated(w.Law, t.Usage.PromptTokens)
			switch {
			case p.Phase == "warm":
				if y.server.Capacity == nil && !y.server.Shared { // what was evicted follows from the prompts, or from what others sent
					reading.Expected.Min += all
				}
				reading.Expected.Max += all
			default:
				together := sharedHits(w.Law, t.Usage.PromptTokens, shared)
				reading.Expected.Max += together + (all-together)/2
			}
			if w.Asked != nil && count.HasQueries {
				reading.ExpectedQueries += w.Asked(t.Usage.PromptTokens)
			}
		}
		reading.Queries = count.Queries
		if y.server.Shared && foreign(w, count, reading.ExpectedQueries) {
			reading.State = row.Absent
		}
		if reading.State == row.Known && (w.Name == "sources" || w.Name == "engine") { // under the law of usage
			p.HitTokens, p.HitsUnknown = int(count.Hits), false
		}
		readings = append(readings, reading)
	}
	lines, findings := verdict.Reconcile(p.Phase, readings)
	p.Witnesses = lines
	for _, l := range lines {
		p.Expected.Total = l.Expected
		break
	}
	return findings
}

// repeated is what a cache returns of a prompt that it holds.
func repeated(law fixtures.Law, prompt int) int {
	if law.Unit == 0 {
		return law.Returned(prompt, 0)
	}
	return law.Returned(prompt, prompt/law.Unit*law.Unit)
}

// sharedHits is what a cache returns of a prompt of which it holds so many
// tokens of another.
func sharedHits(law fixtures.Law, prompt, shared int) int {
	if law.Unit == 0 {
		return 0
	}
	return law.Returned(prompt, min(shared, prompt)/law.Unit*law.Unit)
}

func (y *cycle) loadedRecord(p *Pass, summary artifact.Summary, before, after map[string]row.Snapshot) (artifact.Pass, artifact.PhaseMetrics) {
	metrics, ratios := Metrics(before, after)
	if y.config.Arrivals == nil {
		summary.Occupy(y.config.Concurrency)
	}
	summary.BackendHitRate = ratios.BackendServerCacheHitRate
	summary.ExternalHitRate = ratios.Candidates["vllm_external_prefix"].Rate
	return artifact.Pass{
		Summary: summary, Witnesses: p.Witnesses, HitRatios: ratios, Counters: counterDeltas(before, after),
		Expected: artifact.Expected{
			Law: y.server.Law.Name, MinHitTokens: p.Expected.Total.Min, MaxHitTokens: p.Expected.Total.Max, PromptTokens: p.PromptTokens,
		},
	}, metrics
}

func counterDeltas(before, after map[string]row.Snapshot) map[string]artifact.CounterDelta {
	counters := make(map[string]artifact.CounterDelta, len(after))
	for name, a := range after {
		b := before[name]
		counters[name] = artifact.CounterDelta{Before: b.Series, After: a.Series, Delta: artifact.Moved(b, a)}
	}
	return counters
}
