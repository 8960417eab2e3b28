package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// prefillChunk is how many prompt tokens are computed between two looks at
// whether the client is still there.
const prefillChunk = 256

// run takes a sequence that was admitted to its end. Only the last output is
// sent after the sequence has given its blocks back.
func (e *Engine) run(s *sequence) {
	last, err := e.generate(s)
	e.finish(s)
	if err == nil {
		e.metrics.finished(s, last.finish)
		s.send(last)
		return
	}
	switch cause := context.Cause(s.ctx); {
	case cause == nil:
		e.log.Printf("request %s failed: %v", s.id, err)
		e.metrics.failed()
		s.send(output{err: errGeneration})
	default:
		s.send(output{err: cause})
	}
}

// generate sends all outputs of a sequence but the last, which it returns.
func (e *Engine) generate(s *sequence) (output, error) {
	for _, b := range s.blocks[s.local/e.config.BlockSize:] {
		b.prepare(e.model.BlockLen(e.config.BlockSize))
	}
	s.computed = s.local
	found, err := e.loadExternal(s)
	if err != nil {
		return output{}, err
	}
	if e.config.RecomputeHits {
		s.computed = s.local
	}
	for s.computed < len(s.prompt) {
		n := min(prefillChunk, len(s.prompt)-s.computed)
		if err := e.forward(s, n, s.computed+n == len(s.prompt)); err != nil {
			return output{}, err
		}
	}
	for {
		o := s.next()
		s.judge(&o, e.tokenizer)
		e.metrics.token(s, time.Now())
		if o.finish == "" {
			s.send(o)
		}
		due := s.generated() == 1
		if e.config.DeferStores {
			due = o.finish != ""
		}
		if due {
			// After the first token was sent, so that it does not wait for the
			// copy, but before the answer ends.
			if err := e.storeExternal(s, found); err != nil {
				e.log.Printf("request %s: %v", s.id, err)
			}
		}
		if o.finish != "" {
			return o, nil
		}
		if err := e.forward(s, 1, true); err != nil {
			return output{}, err
		}
	}
}

// prepare makes a block that was just taken as empty as a new one: what
// another request left there must never pass for KV that a store failed to
// deliver.
func (b *block) prepare(length int) {
	if b.data == nil {
		b.data = make([]float32, length)
		return
	}
	clear(b.data)
}

// forward computes the next n tokens; with sample, the logits after them too.
func (e *Engine) forward(s *sequence, n int, sample bool) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	end := s.computed + n
	in := model.Sequence{
		Tokens: s.tokens[s.computed:end],
		Start:  s.computed,
		Blocks: views(s.blocks[:blocksFor(end, e.config.BlockSize)]),
	}
	if sample {
		in.Logits = s.logits
	}
	flops, err := e.weights.Load().Forward(e.config.BlockSize, []model.Sequence{in})
	if err != nil {
		return fmt.Errorf("computing tokens %d to %d: %w", s.computed, end, err)
	}
	if sample && s.generated() > 0 {
		e.noise.disturb(s.logits)
	}
	e.metrics.step(min(n, max(0, len(s.prompt)-s.computed)), sample, flops)
	s.computed = end
	e.publish(s)
	return nil
}

// publish puts the blocks that are full by now into the prefix cache, those of
// generated tokens too.
func (e *Engine) publish(s *sequence) {
	full := s.computed / e.config.BlockSize
	if !e.config.PrefixCaching || full == s.published {
		return
	}
	s.extendKeys(rootKey(e.weights.Load().Fingerprint(), s.salt), e.config.BlockSize)
	e.mu.Lock()
	defer e.mu.Unlock()
	for ; s.published < full; s.published++ {
		e.pool.publish(s.blocks[s.published], s.keys[s.published])
	}
}

// loadExternal asks the store for more of the prompt than the prefix cache
// gave, and loads it. It returns how many tokens the store said it has: the
// store is believed, but the last token of a prompt is always computed, because
// its logits are needed. Hence LMCache's law min(found, P-1).
func (e *Engine) loadExternal(s *sequence) (found int, err error) {
	store := e.config.Store
	if store == nil {
		return 0, nil
	}
	if s.skips.load {
		e.metrics.lookedUp(len(s.prompt)-s.local, 0)
		return 0, nil
	}
	started := time.Now()
	defer func() { e.metrics.loading.Add(time.Since(started).Seconds()) }()
	r := s.asked()
	found, err = store.Lookup(s.ctx, r)
	if err != nil {
		e.log.Printf("request %s: looking up %d tokens in the external cache: %v", s.id, len(s.prompt), err)
		found = 0
	}
	hit := min(found, len(s.prompt)-1)
	s.external = max(0, hit-s.local)
	e.metrics.lookedUp(len(s.prompt)-s.local, s.external)
	if s.external == 0 {
		return found, nil
	}
	e.addLoading(1)
	defer e.addLoading(-1)
	if err := store.Load(s.ctx, r, hit, e.destination(s, hit)); err != nil {
		return 0, fmt.Errorf("loading %d tokens from the external cache: %w", hit, err)
	}
	s.computed = hit
	e.publish(s)
	return found, nil
}

// destination is where a store writes the first n tokens of s. Blocks of the
// prefix cache are shared with other sequences and stand already: what the
// store has for them goes nowhere.
func (e *Engine) destination(s *sequence, n int) [][]float32 {
	dst := views(s.blocks[:blocksFor(n, e.config.BlockSize)])
	for i := range s.local / e.config.BlockSize {
		dst[i] = make([]float32, e.model.BlockLen(e.config.BlockSize))
	}
	return dst
}

// storeExternal gives the prompt to the store, unless the request skips saving
// or all of its whole chunks came from there.
func (e *Engine) storeExternal(s *sequence, found int) error {
	store := e.config.Store
	if store == nil || s.skips.save || len(s.prompt)/store.Chunk()*store.Chunk() <= found {
		return nil
	}
	src := views(s.blocks[:blocksFor(len(s.prompt), e.config.BlockSize)])
	r := s.asked()
	// The KV is complete: it is worth keeping even if the client leaves now.
	if err := store.Store(context.WithoutCancel(s.ctx), r, src); err != nil {
		return fmt.Errorf("storing %d tokens in the external cache: %w", len(s.prompt), err)
	}
	return nil
}

func (e *Engine) addLoading(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loading += n
}

func views(blocks []*block) [][]float32 {
	v := make([][]float32, len(blocks))
	for i, b := range blocks {
		v[i] = b.data
	}
	return v
}
