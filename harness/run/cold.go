package run

import (
	"context"
	"fmt"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// goCold makes the cache empty and, where the row promises that it is, proves
// it with a sacrificial prompt: cached before the reset, absent after it. What
// it shows are the cycle's first findings.
func (y *cycle) goCold(ctx context.Context) error {
	if !y.config.Reuse {
		return ctx.Err()
	}
	if !y.config.Reset {
		y.cold(ctx)
		return ctx.Err()
	}
	prompt := fixtures.Sacrificial(y.params)
	before, _ := y.snapshots(ctx, "reset") // what cannot be read is found by the passes
	if _, ok := y.sacrifice(ctx, "store", prompt); !ok {
		return ctx.Err()
	}
	cached, ok := y.sacrifice(ctx, "load", prompt)
	if !ok {
		return ctx.Err()
	}
	law := y.server.Law
	if want := law.Returned(len(prompt), len(prompt)/law.Unit*law.Unit); cached != want {
		code := row.HitBelowOracle
		if cached > want {
			code = row.HitAboveOracle
		}
		y.unasked(ctx, before, 2*len(prompt))
		y.found(row.Finding{
			Code: code, Phase: "reset", Request: "sacrificial-load",
			Evidence: fmt.Sprintf("a prompt of %d tokens that had just been stored was answered with %d cached tokens, %s gives %d", len(prompt), cached, law.Name, want),
			Advice:   "the cache does not return what it was given, so no reset can be proved on it",
		})
		return ctx.Err()
	}

	if !y.cold(ctx) {
		return ctx.Err()
	}
	cached, ok = y.sacrifice(ctx, "after-reset", prompt)
	y.cache.store(fixtures.Plan{Requests: []fixtures.Request{{Prompt: prompt}}})
	if ok && cached != 0 {
		y.found(row.Finding{
			Code: row.ResetNotHonoured, Phase: "reset", Request: "sacrificial-after-reset",
			Evidence: fmt.Sprintf("the reset was acknowledged, yet %d of %d tokens of a prompt cached before it still hit", cached, len(prompt)),
			Advice:   "some tier was not cleared (vLLM leaves a connector's tier alone unless reset_external=true)",
		})
	}
	return ctx.Err()
}

// sacrifice sends the sacrificial prompt once, settles, and returns how many
// of its tokens were cached; false if that showed a finding, or ctx ended.
func (y *cycle) sacrifice(ctx context.Context, step string, prompt []int32) (int, bool) {
	request := row.Request{ID: "sacrificial-" + step, Prompt: prompt, MaxTokens: 1, IgnoreEOS: true}
	got := y.server.Client.Do(ctx, request)
	if ctx.Err() != nil {
		return 0, false
	}
	found := verdict.CheckRequest("reset", request, got)
	if len(found) > 0 {
		_, unreadable := y.snapshots(ctx, "reset")
		found = y.autopsy(ctx, found, unreadable)
	}
	cached, ok := got.Cached()
	if len(found) == 0 && !ok {
		found = append(found, row.Finding{
			Code: row.WitnessMissing, Phase: "reset", Request: request.ID,
			Evidence: "usage does not say how many prompt tokens were cached",
			Advice:   "without it a reset cannot be proved; switch prompt-token details on at the server",
		})
	}
	if err := settle(ctx, y.server); err != nil && len(found) == 0 && ctx.Err() == nil {
		found = append(found, settleFinding("reset", err))
	}
	y.found(found...)
	return cached, len(found) == 0 && ctx.Err() == nil
}

// cold empties the cache within its deadline; false: it could not.
func (y *cycle) cold(ctx context.Context) bool {
	y.last = nil
	reset, cancel := context.WithTimeout(ctx, y.config.ResetTimeout)
	defer cancel()
	err := y.server.Cache.Cold(reset)
	if err != nil && ctx.Err() == nil {
		y.found(row.Finding{
			Code: row.ResetNotHonoured, Phase: "reset", Evidence: err.Error(),
			Advice: "a cold pass needs an empty cache: free the blocks in use, or restart the server",
		})
	}
	return err == nil
}

func settleFinding(phase string, err error) row.Finding {
	return row.Finding{
		Code: row.Stalled, Phase: phase, Evidence: err.Error(),
		Advice: "look at the store's queue in its status; a warm pass before stores are done measures nothing",
	}
}
