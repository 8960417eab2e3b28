package run

import (
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// oracles holds one oracle per law in play: the cache has one state, each
// witness its own way of counting it.
type oracles struct {
	server      *row.Server
	concurrency int
	stored      []fixtures.Plan
	byLaw       map[string]*fixtures.Oracle
	tiers       map[string]*fixtures.Tiers // where the store's size matters
	own         *oracles                   // of the engine's own cache in front; nil: there is none
}

func newOracles(server *row.Server, concurrency int) *oracles {
	o := &oracles{
		server: server, concurrency: concurrency,
		byLaw: make(map[string]*fixtures.Oracle), tiers: make(map[string]*fixtures.Tiers),
	}
	o.emptyOwn()
	return o
}

func (o *oracles) of(law fixtures.Law) *fixtures.Oracle {
	oracle := o.byLaw[law.Name]
	if oracle == nil {
		oracle = fixtures.NewOracle(law)
		for _, plan := range o.stored {
			oracle.Store(plan)
		}
		o.byLaw[law.Name] = oracle
	}
	return oracle
}

// inFlight is how many requests of a plan may be under way at one time.
func (o *oracles) inFlight(plan fixtures.Plan) int { return min(o.concurrency, len(plan.Requests)) }

// tiersOf is of for a store that evicts.
func (o *oracles) tiersOf(law fixtures.Law) *fixtures.Tiers {
	tiers := o.tiers[law.Name]
	if tiers == nil {
		tiers = fixtures.NewTiers(law, *o.server.Capacity)
		for _, plan := range o.stored {
			tiers.Store(plan, o.inFlight(plan))
		}
		o.tiers[law.Name] = tiers
	}
	return tiers
}

// expect is what a pass must hit under a law.
func (o *oracles) expect(law fixtures.Law, plan fixtures.Plan) fixtures.Expectation {
	switch {
	case o.own != nil && law.Name == o.server.Law.Name: // of usage
		return o.longer(plan)
	case o.server.Capacity != nil && law.Unit > 0:
		return o.tiersOf(law).ExpectTiers(plan, o.inFlight(plan)).Hits
	case o.server.Deferred:
		return o.of(law).ExpectDeferred(plan)
	default:
		return o.of(law).Expect(plan, o.inFlight(plan))
	}
}

// expectTier is the part of the hits that one tier must serve: up to all of
// them where the oracle knows no sizes.
func (o *oracles) expectTier(law fixtures.Law, plan fixtures.Plan, tier row.Tier) fixtures.Interval {
	switch tier {
	case row.Own, row.Beyond, row.Loaded:
		return o.part(law, plan, tier)
	}
	if o.server.Capacity == nil || law.Unit == 0 {
		return fixtures.Interval{Max: o.expect(law, plan).Total.Max}
	}
	tiers := o.tiersOf(law)
	switch tier {
	case row.L2:
		return tiers.ExpectTiers(plan, o.inFlight(plan)).L2.Total
	case row.Evicted:
		units := tiers.Evicted(plan, o.inFlight(plan))
		return fixtures.Interval{Min: units.Min * law.Unit, Max: units.Max * law.Unit}
	default:
		return tiers.ExpectTiers(plan, o.inFlight(plan)).L1.Total
	}
}

// store tells the oracles of a pass over the plan that has settled.
func (o *oracles) store(plan fixtures.Plan) {
	if o.own != nil {
		o.own.store(plan)
	}
	o.stored = append(o.stored, plan)
	for _, oracle := range o.byLaw {
		oracle.Store(plan)
	}
	for _, tiers := range o.tiers {
		tiers.Store(plan, o.inFlight(plan))
	}
}

// expect is what a pass must hit under a law; nothing if it skips the cache.
func (y *cycle) expect(p *Pass, law fixtures.Law, plan fixtures.Plan) fixtures.Expectation {
	if p.skipsReuse() {
		law = fixtures.NoReuse()
	}
	expected := y.cache.expect(law, plan)
	if y.server.Shared { // it may have evicted anything, or another replica has it
		expected.Total.Min = 0
		expected.Requests = slices.Clone(expected.Requests)
		for i := range expected.Requests {
			expected.Requests[i].Min = 0
		}
	}
	return expected
}

func (y *cycle) expectTier(p *Pass, w row.Witness, plan fixtures.Plan) fixtures.Interval {
	if p.skipsReuse() {
		return fixtures.Interval{}
	}
	return y.cache.expectTier(w.Law, plan, w.Tier)
}

// reconcile lays the witnesses of a pass side by side, usage first.
func (y *cycle) reconcile(p *Pass, plan fixtures.Plan, before, after map[string]row.Snapshot) []row.Finding {
	usage := verdict.Reading{
		Witness: "usage", Source: "usage.prompt_tokens_details.cached_tokens", Law: y.server.Law.Name,
		Expected: p.Expected.Total, Hits: float64(p.HitTokens), State: row.Known, Required: !y.server.Shared,
	}
	for _, t := range p.Timelines {
		if _, ok := t.Cached(); !ok {
			usage.State = row.Absent
		}
	}
	if p.HitsUnknown = usage.State != row.Known; p.HitsUnknown {
		p.HitTokens = 0 // of the requests that do tell
	}
	var readings []verdict.Reading
	if !p.failed() { // what failed has its own finding, and no usage
		readings = append(readings, usage)
	}
	for _, w := range y.server.Witnesses {
		count := w.Count(before[w.Probe], after[w.Probe])
		reading := verdict.Reading{
			Witness: w.Name, Source: fmt.Sprintf("%s of %s", w.Source, w.Probe), Law: w.Law.Name,
			Expected: y.expect(p, w.Law, plan).Total, Hits: count.Hits, State: count.State, Required: w.Required && !y.server.Shared,
		}
		if w.Merged && y.cache.inFlight(plan) > 1 && y.server.Capacity == nil && !p.skipsReuse() {
			reading.Expected.Min = min(reading.Expected.Min, y.cache.of(w.Law).Distinct(plan))
		}
		if w.Tier != "" {
			reading.Law = string(w.Tier) + " part of " + w.Law.Name
			reading.Expected = y.expectTier(p, w, plan)
			if w.Name == "backend-"+string(w.Tier) {
				p.TierTokens[w.Tier] = int(count.Hits)
			}
		}
		asked := 0
		if w.Asked != nil && !p.skipsReuse() {
			for _, r := range p.Requests {
				asked += w.Asked(len(r.Prompt))
			}
			if count.HasQueries {
				reading.Queries, reading.ExpectedQueries = count.Queries, asked
			}
		}
		if y.server.Shared && foreign(w, count, asked) {
			reading.State = row.Absent
		}
		if p.HitsUnknown && reading.State == row.Known && w.Tier == "" && w.Law.Name == y.server.Law.Name {
			p.HitTokens, p.HitsUnknown = int(reading.Hits), false
		}
		readings = append(readings, reading)
	}
	lines, findings := verdict.Reconcile(p.Phase, readings)
	p.Witnesses = lines
	return findings
}

// foreign says that a count may hold somebody else's requests, or lack some of
// ours that another replica counts: it did not move by what was asked.
func foreign(w row.Witness, count row.Count, asked int) bool {
	return w.Asked == nil || !count.HasQueries || count.Queries != float64(asked)
}
