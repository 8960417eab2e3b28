package run

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// emptyOwn forgets what the engine's own cache holds, where it has one.
func (o *oracles) emptyOwn() {
	if o.server.Own != nil {
		o.own = newOracles(&row.Server{Law: o.server.Own.Law}, o.concurrency)
	}
}

// restarted is what a restart of the cache leaves. Every law in play has been
// asked by then, so none is made anew out of what was stored before.
func (o *oracles) restarted() {
	o.emptyOwn()
	for _, tiers := range o.tiers {
		tiers.Restart()
	}
}

// emptyStore forgets what the cache server holds.
func (o *oracles) emptyStore() {
	o.stored = nil
	clear(o.byLaw)
	clear(o.tiers)
}

// both is what a pass hits in the engine's own cache and in the cache server
// behind it, which is asked for the whole prompt.
func (o *oracles) both(law fixtures.Law, plan fixtures.Plan) (own, behind fixtures.Expectation) {
	return o.own.expect(o.server.Own.Law, plan), o.of(law).ExpectDeferred(plan)
}

// longer is what a pass hits in both together: the longer of the two.
func (o *oracles) longer(plan fixtures.Plan) fixtures.Expectation {
	own, behind := o.both(o.server.Law, plan)
	e := fixtures.Expectation{PromptTokens: own.PromptTokens}
	for i, hits := range behind.Requests {
		hits = fixtures.Interval{Min: max(hits.Min, own.Requests[i].Min), Max: max(hits.Max, own.Requests[i].Max)}
		e.Requests = append(e.Requests, hits)
		e.Total.Min += hits.Min
		e.Total.Max += hits.Max
	}
	return e
}

// part is what one of the two serves of a pass, as tokens under a law: the own
// cache its hits, the server what it has beyond them, and for that it delivers
// all that it found.
func (o *oracles) part(law fixtures.Law, plan fixtures.Plan, tier row.Tier) (total fixtures.Interval) {
	own, behind := o.both(o.server.Law, plan)
	if tier == row.Own {
		return own.Total
	}
	_, found := o.both(law, plan)
	for i, hits := range behind.Requests {
		part := fixtures.Interval{Min: max(0, hits.Min-own.Requests[i].Max), Max: max(0, hits.Max-own.Requests[i].Min)}
		if tier == row.Loaded {
			part = fixtures.Interval{Min: min(part.Min, 1) * found.Requests[i].Min, Max: min(part.Max, 1) * found.Requests[i].Max}
		}
		total.Min += part.Min
		total.Max += part.Max
	}
	return total
}

// reopen restarts what holds the cache, where a wave wants it.
func (y *hitCycle) reopen(ctx context.Context, wave fixtures.Wave) error {
	if !wave.Restart {
		return nil
	}
	if y.server.Reopen == nil {
		return fmt.Errorf("case %s, wave %s: row %s has nothing that could be restarted", y.name, wave.Name, y.server.Row)
	}
	if err := y.server.Reopen.Do(ctx); err != nil {
		return fmt.Errorf("restarting what holds the cache: %w", err)
	}
	y.last = nil // counters begin anew
	if y.server.Reopen.Keeps {
		y.cache.restarted()
	} else {
		y.cache = newOracles(y.server, y.config.Concurrency)
	}
	return nil
}

// emptyOne empties one of the two caches alone, as a wave wants it.
func (y *hitCycle) emptyOne(ctx context.Context, wave fixtures.Wave) error {
	own := y.server.Own
	switch {
	case !wave.EmptyEngine && !wave.EmptyStore:
		return nil
	case own == nil:
		return fmt.Errorf("case %s, wave %s: row %s has no cache of the engine's own beside another", y.name, wave.Name, y.server.Row)
	case wave.EmptyEngine:
		if err := own.Empty(ctx); err != nil {
			return fmt.Errorf("emptying the engine's own cache: %w", err)
		}
		y.cache.emptyOwn()
	default:
		if err := own.EmptyStore(ctx); err != nil {
			return fmt.Errorf("emptying the cache server: %w", err)
		}
		y.cache.emptyStore()
	}
	return nil
}
