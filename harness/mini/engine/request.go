package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// A request is one HTTP request that generates: one or more prompts.
type request struct {
	params
	id        string // "cmpl-…", as answers show it
	created   int64  // seconds since 1970
	sequences []*sequence
	out       chan output
	ctx       context.Context
}

// newRequest prepares the sequences of a request; nothing runs yet. ctx ends
// them all.
func (e *Engine) newRequest(r *http.Request, prefix string, p params, prompts [][]int32) (*request, *apiError) {
	if len(prompts) == 0 {
		return nil, badRequest("You must pass at least one prompt")
	}
	now := time.Now()
	q := &request{params: p, id: prefix + requestID(r), created: now.Unix()}
	room := 0
	for i, prompt := range prompts {
		s := &sequence{
			sampling: p.sampling, id: fmt.Sprintf("%s-%d", q.id, i), index: i, prompt: prompt, salt: p.salt, skips: p.skips, arrived: now,
			tokens:   append(make([]int32, 0, len(prompt)+1), prompt...),
			sampler:  model.NewSampler(p.seed, p.temperature),
			stopText: newStopText(p.stops),
			logits:   make([]float32, e.model.Config().Vocab),
		}
		var refused *apiError
		if s.maxTokens, refused = e.fit(prompt, p.maxTokens); refused != nil {
			return nil, refused
		}
		if e.config.PrefixCaching {
			s.extendKeys(rootKey(e.weights.Load().Fingerprint(), s.salt), e.config.BlockSize)
		}
		room += s.maxTokens + 1
		q.sequences = append(q.sequences, s)
	}
	q.out = make(chan output, room)
	return q, nil
}

// start queues the request. Its sequences end when ctx does.
func (e *Engine) start(ctx context.Context, q *request) (stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	q.ctx = ctx
	for _, s := range q.sequences {
		s.ctx, s.cancel, s.out = ctx, cancel, q.out
	}
	if err := e.submit(q.sequences); err != nil {
		cancel(err)
		return nil, err
	}
	return func() { cancel(context.Canceled) }, nil
}

// requestID is the id that the client chose, else a random one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return id
	}
	return randomHex()
}

// randomHex is 16 hexadecimal digits.
func randomHex() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// promptTokens is the sum over the prompts.
func (q *request) promptTokens() int {
	n := 0
	for _, s := range q.sequences {
		n += len(s.prompt)
	}
	return n
}
