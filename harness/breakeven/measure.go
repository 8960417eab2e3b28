package breakeven

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// Config is what Measure compares.
type Config struct {
	Server    *row.Server     // the row with the cache
	Recompute row.Client      // of a row without one on the same engine; nil: the server's own cold requests stand in
	Params    fixtures.Params // sizes and seed; lengths are those below
	Lengths   []int           // of hits, in tokens: multiples of the law's unit
	Repeats   int             // at each length
	Sample    int             // number of this measurement on this server: content differs

	Tier  row.Tier // that hits must come from; empty: any
	Flush int      // tokens that are stored between a store and its load, to push it out of the first tier

	Progress func(string) // nil: nobody watches
}

// Lengths are hit lengths to measure at: powers of two of the block size, as far
// as most, or at least eight blocks, and the context allow.
func Lengths(blockSize, most, context int) (lengths []int) {
	const output = 2
	for n := blockSize; n <= max(most, 8*blockSize) && n+1+output <= context; n *= 2 {
		lengths = append(lengths, n)
	}
	return lengths
}

// outputLen is what each request generates: enough to see that the answer after
// a hit is the one before it.
const outputLen = 2

// Measure sends each prompt to be computed, then to the row that does not have
// it, and then to the row that has all of it but its last token, one request at
// a time. A finding says that the row did something else, and ends it.
func Measure(ctx context.Context, c Config) (*Curve, []row.Finding, error) {
	var curve Curve
	for repeat := range c.Repeats {
		for _, n := range c.Lengths {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("%s break-even %s %d/%d, %d tokens", c.Server.Row, c.Tier, repeat+1, c.Repeats, n))
			}
			m := measurement{Config: c, id: fmt.Sprintf("break-even-%d-%d-%d", c.Sample, repeat, n)}
			if found, err := m.measure(ctx, n, &curve); err != nil || len(found) > 0 {
				return &curve, found, err
			}
		}
	}
	return &curve, nil, nil
}

// A measurement is one prompt.
type measurement struct {
	Config
	id string
}

func (m *measurement) measure(ctx context.Context, n int, curve *Curve) ([]row.Finding, error) {
	prompt, err := m.prompt(m.id, n+1)
	if err != nil {
		return nil, err
	}
	var recompute time.Duration
	if m.Recompute != nil {
		var found []row.Finding
		if recompute, _, found = m.ask(ctx, m.Recompute, "recompute", prompt, 0); len(found) > 0 {
			return found, ctx.Err()
		}
	}
	cold, answer, found := m.ask(ctx, m.Server.Client, "cold", prompt, 0)
	if len(found) == 0 {
		found, err = m.settle(ctx)
	}
	if err != nil || len(found) > 0 {
		return found, err
	}
	if found, err = m.flush(ctx); err != nil || len(found) > 0 {
		return found, err
	}
	before, err := m.hitsOfTier(ctx)
	if err != nil {
		return nil, err
	}
	want := m.Server.Law.Returned(n+1, n/m.Server.Law.Unit*m.Server.Law.Unit)
	load, again, found := m.ask(ctx, m.Server.Client, "warm", prompt, want)
	if len(found) > 0 {
		return found, ctx.Err()
	}
	if !slices.Equal(answer, again) {
		return []row.Finding{m.found(row.OutputDiffers, "warm", "the answer after a hit of %d tokens is not the one before it", want)}, nil
	}
	after, err := m.hitsOfTier(ctx)
	if err != nil {
		return nil, err
	}
	if m.Tier != "" && after-before < float64(want) {
		return []row.Finding{m.found(row.WitnessDisagrees, "warm", "of a hit of %d tokens %v came from %s", want, after-before, m.Tier)}, nil
	}
	if m.Recompute == nil {
		curve.Add(n, cold, load, 0)
		return nil, nil
	}
	curve.Add(n, recompute, load, cold)
	return nil, nil
}

// prompt is content of its own, of so many tokens.
func (m *measurement) prompt(name string, tokens int) ([]int32, error) {
	unique, err := fixtures.ByName("unique")
	if err != nil {
		return nil, err
	}
	p := m.Params
	p.Requests, p.InputLen, p.OutputLen = 1, tokens, outputLen
	p.Nonce += " " + name
	plan, err := unique.Plan(p)
	if err != nil {
		return nil, fmt.Errorf("measuring a break-even at %d tokens: %w", tokens-1, err)
	}
	return plan.Requests[0].Prompt, nil
}

// ask sends a prompt and checks that as much of it was cached as it must be.
func (m *measurement) ask(ctx context.Context, client row.Client, phase string, prompt []int32, cached int) (time.Duration, []int32, []row.Finding) {
	t := client.Do(ctx, row.Request{ID: m.id + "-" + phase, Prompt: prompt, MaxTokens: outputLen, IgnoreEOS: true})
	ttft, ok := t.TTFT()
	if t.Status != row.OK || !ok {
		return 0, nil, []row.Finding{m.found(row.RequestFailed, phase, "it ended %s: %s", t.Status, t.Err)}
	}
	if got, known := t.Cached(); got != cached && (known || cached > 0) {
		code := row.HitAboveOracle
		switch {
		case !known:
			code = row.WitnessMissing
		case got < cached:
			code = row.HitBelowOracle
		case phase != "warm":
			code = row.ColdNotCold
		}
		return 0, nil, []row.Finding{m.found(code, phase, "%d of %d prompt tokens were cached, want %d", got, len(prompt), cached)}
	}
	return ttft, t.Tokens, nil
}

// settleTimeout bounds the wait until a store can be read.
const settleTimeout = time.Minute

func (m *measurement) settle(ctx context.Context) ([]row.Finding, error) {
	waiting, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := m.Server.Cache.Settle(waiting); err != nil && ctx.Err() == nil {
		return []row.Finding{m.found(row.Stalled, "cold", "%v", err)}, nil
	}
	return nil, ctx.Err()
}

// flush stores other prompts, as long as the longest.
func (m *measurement) flush(ctx context.Context) ([]row.Finding, error) {
	longest := slices.Max(m.Lengths) + 1
	for sent := 0; sent < m.Flush; sent += longest {
		prompt, err := m.prompt(fmt.Sprintf("%s flush %d", m.id, sent), longest)
		if err != nil {
			return nil, err
		}
		if _, _, found := m.ask(ctx, m.Server.Client, "flush", prompt, 0); len(found) > 0 {
			return found, ctx.Err()
		}
		if found, err := m.settle(ctx); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// hitsOfTier is the counter of the tier that hits must come from.
func (m *measurement) hitsOfTier(ctx context.Context) (float64, error) {
	if m.Tier == "" {
		return 0, nil
	}
	i := slices.IndexFunc(m.Server.Witnesses, func(w row.Witness) bool { return w.Name == "backend-"+string(m.Tier) })
	if i < 0 {
		return 0, fmt.Errorf("row %s does not count what comes from %s", m.Server.Row, m.Tier)
	}
	w := m.Server.Witnesses[i]
	for _, probe := range m.Server.Probes {
		if probe.Name() != w.Probe {
			continue
		}
		snapshot, err := probe.Snapshot(ctx)
		if err != nil {
			return 0, fmt.Errorf("reading the counters of %s: %w", w.Probe, err)
		}
		return w.Count(row.Snapshot{Probe: w.Probe}, snapshot).Hits, nil
	}
	return 0, fmt.Errorf("row %s has no probe %s", m.Server.Row, w.Probe)
}

func (m *measurement) found(code row.Code, phase, evidence string, args ...any) row.Finding {
	return row.Finding{
		Code: code, Phase: phase, Request: m.id + "-" + phase, Evidence: fmt.Sprintf(evidence, args...),
		Advice: "a break-even between something else than a recompute and a hit means nothing",
	}
}
