package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// HitCase sends the waves of a case one after the other. Each wave is held to
// the oracle and its witnesses as a pass is, and each answer, logprobs too, to
// the first one that the same question got. It returns what it found; an error
// means that the case could not be run.
func (c *Cell) HitCase(ctx context.Context, hitCase fixtures.HitCase) ([]row.Finding, error) {
	if lacks := c.Lacks(hitCase); lacks != "" {
		return nil, errors.New(lacks)
	}
	y := &hitCycle{
		cycle: cycle{
			Cell: c, params: c.config.Params, proof: true, minimum: 1,
			record: c.config.Artifacts.Cycle(hitCase.Name),
		},
		name: hitCase.Name, first: make(map[string]firstAnswer),
	}
	if c.config.Logprobs {
		y.logprobs = proofLogprobs
	}
	y.cache = c.oracles()
	err := y.waves(ctx, hitCase.Waves)
	if err == nil {
		err = y.keepFindings()
	}
	return y.result.Findings, errors.Join(err, ctx.Err())
}

// Lacks says what the row, as it was found, lacks for a case; empty: nothing.
func (c *Cell) Lacks(hitCase fixtures.HitCase) string {
	separate := slices.Contains(hitCase.Needs, fixtures.NeedSalts)
	switch {
	case separate && !c.config.Salts:
		return fmt.Sprintf("case %s asks one prompt under several salts, and row %s was not seen to keep them apart", hitCase.Name, c.server.Row)
	case hitCase.NeedsReference() && !c.canRecompute():
		return fmt.Sprintf("case %s needs an answer without the cache, and row %s can neither skip its cache, nor empty it, nor separate requests by a salt", hitCase.Name, c.server.Row)
	}
	return ""
}

// A hitCycle is a case under way.
type hitCycle struct {
	cycle
	name  string
	first map[string]firstAnswer // by question
}

// A firstAnswer is what a question was answered before anything was cached.
type firstAnswer struct {
	phase    string
	timeline row.Timeline
}

// waves stops at the first wave that shows something: what follows would only
// repeat it.
func (y *hitCycle) waves(ctx context.Context, waves []fixtures.Wave) error {
	updated := false
	for i, wave := range waves {
		if i == 0 && y.server.Upload != nil {
			y.plan = y.wavePlan(waves[len(waves)-1])
			if err := y.upload(ctx); err != nil || len(y.result.Findings) > 0 {
				return err
			}
			y.cache.store(y.plan)
		}
		err := y.wave(ctx, wave)
		if updated = updated || wave.NewWeights; updated {
			y.stale()
		}
		if err != nil || len(y.result.Findings) > 0 {
			return err
		}
	}
	if y.server.KVCheck == nil {
		return nil
	}
	return y.checkKV(ctx)
}

func (y *hitCycle) wavePlan(wave fixtures.Wave) fixtures.Plan {
	return fixtures.Plan{Workload: y.name, BlockSize: y.params.BlockSize, Requests: wave.Requests}
}

// wave sends one wave and judges its answers.
func (y *hitCycle) wave(ctx context.Context, wave fixtures.Wave) error {
	if wave.NewWeights {
		if err := y.server.Weights(ctx); err != nil {
			return fmt.Errorf("changing the weights: %w", err)
		}
		y.last, y.cache = nil, newOracles(y.server, y.config.Concurrency)
		clear(y.first)
	}
	if wave.Empty && y.config.Reuse && !y.empty(ctx) {
		return ctx.Err()
	}
	if err := errors.Join(y.reopen(ctx, wave), y.emptyOne(ctx, wave)); err != nil {
		return err
	}
	if wave.StopAt > 0 {
		if err := y.chooseStops(&wave); err != nil {
			return err
		}
	}
	if wave.Reference && y.config.Reuse && !y.config.SkipReuse && !y.config.Reset {
		wave.Requests = salted(y.wavePlan(wave)).Requests
	}
	plan := y.wavePlan(wave)
	y.plan = plan
	pass, err := y.pass(ctx, wave.Name, plan)
	if err != nil || pass.failed() {
		return err
	}
	// The two passes that a repro shows: what came first, and this one.
	y.result.Warm = pass
	if !pass.skipsReuse() || y.server.SkipStores {
		y.cache.store(plan)
	}
	y.judge(pass)
	if wave.Reference && y.config.Reset && !y.config.SkipReuse && !y.empty(ctx) {
		return ctx.Err()
	}
	return nil
}

// empty empties the cache, of which the oracles know nothing afterwards.
func (y *hitCycle) empty(ctx context.Context) bool {
	done := y.cold(ctx)
	y.cache = newOracles(y.server, y.config.Concurrency)
	return done
}

// stale names what shows after the weights changed for what it is.
func (y *hitCycle) stale() {
	for i, f := range y.result.Findings {
		switch f.Code {
		case row.ColdNotCold, row.HitAboveOracle, row.OutputDiffers, row.LogprobShift:
			y.result.Findings[i].Code = row.StaleCache
			y.result.Findings[i].Advice = "the cache has to be emptied, or its keys to change, when the weights do: " + f.Advice
		}
	}
}

// chooseStops gives each request the id that ends its output.
func (y *hitCycle) chooseStops(wave *fixtures.Wave) error {
	wave.Requests = slices.Clone(wave.Requests)
	for i, r := range wave.Requests {
		full, known := y.first[question(r.Prompt, r.Output, nil)]
		if !known {
			return fmt.Errorf("case %s, wave %s: no earlier wave asked the same without a stop", y.name, wave.Name)
		}
		tokens := full.timeline.Tokens
		for at := wave.StopAt; at < len(tokens); at++ {
			if !slices.Contains(tokens[:at], tokens[at]) {
				wave.Requests[i].Stop = tokens[at : at+1]
				break
			}
		}
	}
	return nil
}

// question names what is asked; the salt is no part of it.
func question(prompt []int32, output int, stop []int32) string {
	return fmt.Sprint(prompt, output, stop)
}

// judge holds each answer of a wave to the first one to the same question, and
// one that a stop token ended to the answer that went on.
func (y *hitCycle) judge(p Pass) {
	for i, got := range p.Timelines {
		r := p.Requests[i]
		key := question(r.Prompt, r.MaxTokens, r.Stop)
		first, known := y.first[key]
		if !known {
			if cached, ok := got.Cached(); ok && cached > 0 && !y.config.Lossy {
				y.found(row.Finding{
					Code: row.ColdNotCold, Phase: p.Phase, Request: r.ID,
					Evidence: fmt.Sprintf("the first request of case %s with its prompt hit %d tokens", y.name, cached),
					Advice:   "what the other answers are to be held to was not computed",
				})
			}
			y.first[key] = firstAnswer{p.Phase, got}
			y.result.Cold = p
			y.stopped(p.Phase, r, got)
			continue
		}
		if y.config.Lossy {
			continue
		}
		_, found := verdict.Judge(verdict.CompareWithin([]row.Timeline{first.timeline}, []row.Timeline{got}, y.rounding()), verdict.Options{
			MinTokens: y.minimum, Exact: y.config.Exact, Logprobs: y.logprobs > 0, Phase: p.Phase,
		})
		y.found(found...)
	}
}

// stopped checks that an answer which a stop token ended is the beginning of
// the one that nothing ended.
func (y *hitCycle) stopped(phase string, r row.Request, got row.Timeline) {
	full, known := y.first[question(r.Prompt, r.MaxTokens, nil)]
	if len(r.Stop) == 0 || !known {
		return
	}
	whole := full.timeline.Tokens
	want := slices.Index(whole, r.Stop[0]) + 1
	if len(got.Tokens) != want || !slices.Equal(got.Tokens, whole[:want]) {
		y.found(row.Finding{
			Code: row.OutputDiffers, Phase: phase, Request: r.ID,
			Evidence: fmt.Sprintf("the answer that stop token %d ends has %d tokens, the one that nothing ended has it as token %d", r.Stop[0], len(got.Tokens), want-1),
			Advice:   "the stop token was not honoured, or the answer before it differs",
		})
	}
}
