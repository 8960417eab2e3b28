package mini

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// How Calibrate measures: passes over a prompt of that many tokens, in blocks
// of that size, for about that long each.
const (
	calibrationTokens = 256
	calibrationBlock  = 16
	calibrationTime   = 80 * time.Millisecond
)

// A Speed is what one sequence of a model reaches on this machine, so that the
// time of a plan can be told beforehand. It is an estimate: others that run at
// the same time slow it down.
type Speed struct {
	Prefill float64 // FLOP/s over many tokens at once
	Decode  float64 // FLOP/s over one token at a time
	model   *model.Model
}

// Calibrate measures a model for about two tenths of a second. It fails only
// where the model's context is too short or ctx ends.
func Calibrate(ctx context.Context, m *model.Model) (Speed, error) {
	c := m.Config()
	tokens := min(calibrationTokens, c.Context-1)
	blocks := make([][]float32, (tokens+calibrationBlock)/calibrationBlock)
	for i := range blocks {
		blocks[i] = make([]float32, m.BlockLen(calibrationBlock))
	}
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32(i % c.Vocab)
	}
	logits := make([]float32, c.Vocab)
	prefill := model.Sequence{Tokens: prompt, Blocks: blocks, Logits: logits}
	decode := model.Sequence{Tokens: prompt[:1], Start: tokens, Blocks: blocks, Logits: logits}

	s := Speed{model: m}
	var err error
	if s.Prefill, err = measure(ctx, m, prefill); err != nil {
		return Speed{}, fmt.Errorf("calibrating prefill of %d tokens: %w", tokens, err)
	}
	if s.Decode, err = measure(ctx, m, decode); err != nil {
		return Speed{}, fmt.Errorf("calibrating decode at %d tokens: %w", tokens, err)
	}
	return s, nil
}

// measure repeats one pass and returns its FLOP/s. The first pass, which finds
// cold caches, is not counted.
func measure(ctx context.Context, m *model.Model, s model.Sequence) (float64, error) {
	var flops int64
	var start time.Time
	for pass := 0; pass < 2 || time.Since(start) < calibrationTime; pass++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := m.Forward(calibrationBlock, []model.Sequence{s})
		if err != nil {
			return 0, err
		}
		if pass == 0 {
			start = time.Now()
			continue
		}
		flops += n
	}
	// A clock that has not moved must not make the speed infinite.
	return float64(flops) / max(time.Since(start).Seconds(), 1e-9), nil
}

// EstimatePrefill is how long a prompt of so many tokens takes to compute.
func (s Speed) EstimatePrefill(tokens int) time.Duration { return s.EstimateHit(tokens, 0) }

// EstimateHit is how long a prompt takes of which the first reused tokens are
// reused.
func (s Speed) EstimateHit(tokens, reused int) time.Duration {
	return seconds(float64(s.model.FLOPs(reused, tokens-reused)) / s.Prefill)
}

// EstimateDecode is how long it takes to generate tokens after a prompt.
func (s Speed) EstimateDecode(prompt, tokens int) time.Duration {
	flops := int64(0)
	for i := range tokens {
		flops += s.model.FLOPs(prompt+i, 1)
	}
	return seconds(float64(flops) / s.Decode)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
