package run

import (
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/row"
)

// takeTurns lets the driver send the turns of a conversation one after the
// other. In the cold pass each goes on with the ids that were generated before,
// and the plan is told of them; every other pass sends what the cold one did.
func (y *cycle) takeTurns(driver *load.Driver, p *Pass, plan fixtures.Plan) {
	if !plan.HasTurns() {
		return
	}
	driver.Turns = make([]load.Turn, len(plan.Requests))
	for i, r := range plan.Requests {
		if r.Turn != nil {
			driver.Turns[i] = load.Turn{Waits: true, Previous: r.Turn.Previous}
		}
	}
	driver.Continue = func(i int, previous row.Timeline) (row.Request, error) {
		if p.Phase != "cold" {
			return p.Requests[i], nil
		}
		before := plan.Requests[i].Turn.Previous
		switch {
		case previous.Status != row.OK:
			return row.Request{}, fmt.Errorf("the turn before it, request %s, ended %s", previous.ID, previous.Status)
		case len(previous.Tokens) == 0:
			return row.Request{}, fmt.Errorf("the answer to the turn before it, request %s, has no token ids, and its text may not become the same ones", previous.ID)
		}
		// Turns of different conversations touch different requests.
		plan.Requests[before].Generated = previous.Tokens
		plan.Continue(i, previous.Tokens)
		p.Requests[i].Prompt = plan.Requests[i].Prompt
		return p.Requests[i], nil
	}
}
