package run

import (
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// oracles holds one oracle per law in play: the cache has one state, each
// witness its own way of counting it.
type oracles struct {
	deferred bool
	stored   []fixtures.Plan
	byLaw    map[string]*fixtures.Oracle
}

func newOracles(server *row.Server) *oracles {
	return &oracles{deferred: server.Deferred, byLaw: make(map[string]*fixtures.Oracle)}
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

// expect is what a pass must hit under a law; nothing if its requests skip the
// cache.
func (o *oracles) expect(law fixtures.Law, plan fixtures.Plan, concurrency int, skip bool) fixtures.Expectation {
	if skip {
		return fixtures.NewOracle(fixtures.NoReuse()).Expect(plan, concurrency)
	}
	if o.deferred {
		return o.of(law).ExpectDeferred(plan)
	}
	return o.of(law).Expect(plan, concurrency)
}

func (o *oracles) store(plan fixtures.Plan) {
	o.stored = append(o.stored, plan)
	for _, oracle := range o.byLaw {
		oracle.Store(plan)
	}
}

// reconcile lays the witnesses of a pass side by side, usage first.
func (y *cycle) reconcile(p *Pass, expect func(fixtures.Law) fixtures.Expectation, before, after map[string]row.Snapshot) []row.Finding {
	usage := verdict.Reading{
		Witness: "usage", Source: "usage.prompt_tokens_details.cached_tokens", Law: y.server.Law.Name,
		Expected: p.Expected.Total, Hits: float64(p.HitTokens), State: row.Known, Required: true,
	}
	for _, t := range p.Timelines {
		if _, ok := t.Cached(); !ok {
			usage.State = row.Absent
		}
	}
	readings := []verdict.Reading{usage}
	for _, w := range y.server.Witnesses {
		count := w.Count(before[w.Probe], after[w.Probe])
		reading := verdict.Reading{
			Witness: w.Name, Source: fmt.Sprintf("%s of %s", w.Source, w.Probe), Law: w.Law.Name,
			Expected: expect(w.Law).Total, Hits: count.Hits, State: count.State, Required: w.Required,
		}
		if w.Asked != nil && count.HasQueries && !p.skipsReuse() {
			reading.Queries = count.Queries
			for _, r := range p.Requests {
				reading.ExpectedQueries += w.Asked(len(r.Prompt))
			}
		}
		readings = append(readings, reading)
	}
	lines, findings := verdict.Reconcile(p.Phase, readings)
	p.Witnesses = lines
	return findings
}
