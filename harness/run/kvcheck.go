package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// checkKV sends the warm prompts once more, untimed and for one token each,
// while the KV that the cache delivers is compared with what the model computes
// for the same tokens. It follows every cycle of a row that can be looked into:
// where outputs differ by design nothing else sees damage.
func (y *cycle) checkKV(ctx context.Context) error {
	again := y.plan.Again()
	again.Requests = slices.Clone(again.Requests)
	for i := range again.Requests {
		again.Requests[i].Output = 1
	}
	if err := y.server.KVCheck.Start(ctx); err != nil {
		return fmt.Errorf("starting the check of delivered KV: %w", err)
	}
	pass, err := y.pass(ctx, "check", again)
	report, stopped := y.server.KVCheck.Stop(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		return err
	case stopped != nil:
		return fmt.Errorf("reading the check of delivered KV: %w", stopped)
	}
	y.cache.store(again)
	y.result.KV = report
	switch {
	case report.Damaged > 0 && len(report.Mismatches) > 0:
		y.found(row.Finding{
			Code: row.KVDiffers, Phase: pass.Phase,
			Evidence: fmt.Sprintf("%d of %d pieces of delivered KV are not what the model computes for their tokens: %s", report.Damaged, report.Checked, report.Mismatches[0]),
			Advice:   "the store returned damaged KV, another document's, or turned it to the wrong position",
		})
	case report.Tokens < pass.HitTokens:
		y.found(row.Finding{
			Code: row.WitnessMissing, Phase: pass.Phase,
			Evidence: fmt.Sprintf("%d tokens hit, but the delivered KV of %d was checked", pass.HitTokens, report.Tokens),
			Advice:   "the hits came from somewhere else than the cache that is checked",
		})
	}
	return nil
}
