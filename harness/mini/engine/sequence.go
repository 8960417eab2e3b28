package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// sampling says how the output of a request comes to be.
type sampling struct {
	maxTokens   int // at least 1, and prompt plus output fit the context
	minTokens   int
	temperature float64
	seed        uint64
	logprobs    int // alternatives per token; -1: no logprobs at all
	ignoreEOS   bool
	stopIDs     []int32
	stops       []string
	skipSpecial bool
}

// An output is what a sequence tells its request: one token, or how it failed.
// A sequence sends maxTokens of them at most, and one more if it fails.
type output struct {
	prompt  int // index of the prompt in the request
	token   int32
	text    string
	logprob *tokenLogprob
	finish  string // "stop" or "length" with the last token
	stop    any    // the stop string or stop id, nil if none
	cached  int    // prompt tokens that were not computed
	err     error
}

// A tokenLogprob is the logprob of a token and of its best alternatives. NaN
// is kept.
type tokenLogprob struct {
	logprob float64
	topIDs  []int32
	top     []float64
}

// A sequence is one prompt on its way through the engine.
type sequence struct {
	sampling
	id      string // "cmpl-…-0"
	index   int    // of the prompt in its request
	prompt  []int32
	salt    string
	skips   skips
	arrived time.Time
	ctx     context.Context
	cancel  context.CancelCauseFunc
	unwatch func() bool
	out     chan<- output // shared by the prompts of a request; has room for all they send

	// Written by admit, then owned by the goroutine that runs the sequence.
	blocks    []*block
	keys      []blockKey // of the full blocks so far; empty without prefix caching
	published int        // blocks that the prefix cache knows
	local     int        // prompt tokens from the prefix cache
	external  int        // prompt tokens from the store, beyond local
	computed  int        // tokens whose KV is there
	tokens    []int32    // prompt and output
	scheduled time.Time
	first     time.Time // of the first token
	last      time.Time // of the last token so far
	sampler   *model.Sampler
	logits    []float32
	masked    []float32 // logits without the tokens that min_tokens forbids
	stopText  *stopText
}

// asked is the prompt as a store sees it.
func (s *sequence) asked() kv.Request {
	return kv.Request{ID: s.id, Tokens: s.prompt, Salt: s.salt, Computed: s.local, SkipLoad: s.skips.load, SkipSave: s.skips.save}
}

// send never blocks: out has room.
func (s *sequence) send(o output) {
	o.prompt = s.index
	o.cached = s.local + s.external
	s.out <- o
}

// generated is the number of tokens of output so far.
func (s *sequence) generated() int { return len(s.tokens) - len(s.prompt) }

// blocksNeeded covers the prompt and all output but the last token, whose KV
// nobody needs.
func (s *sequence) blocksNeeded(size int) int {
	return blocksFor(len(s.prompt)+s.maxTokens-1, size)
}

// reusable is the part of the prompt that the prefix cache may serve: whole
// blocks, and never the last token, because its logits are needed. Hence the
// law floor((P-1)/B)*B.
func (s *sequence) reusable(size int) []blockKey {
	return s.keys[:min(len(s.keys), (len(s.prompt)-1)/size)]
}

// extendKeys hashes the blocks that are full of tokens by now.
func (s *sequence) extendKeys(root blockKey, size int) {
	for len(s.keys) < len(s.tokens)/size {
		before := root
		if n := len(s.keys); n > 0 {
			before = s.keys[n-1]
		}
		at := len(s.keys) * size
		s.keys = append(s.keys, before.chain(s.tokens[at:at+size]))
	}
}

// next samples the token after what was computed.
func (s *sequence) next() output {
	logits := s.logits
	if s.generated() < s.minTokens {
		s.masked = append(s.masked[:0], logits...)
		for _, id := range s.enders() {
			s.masked[id] = float32(math.Inf(-1))
		}
		logits = s.masked
	}
	o := output{token: s.sampler.Sample(logits)}
	if s.logprobs >= 0 {
		lp, ids, lps := model.Logprobs(s.logits, o.token, s.logprobs)
		o.logprob = &tokenLogprob{lp, ids, lps}
	}
	s.tokens = append(s.tokens, o.token)
	return o
}

// enders are the tokens that end the sequence.
func (s *sequence) enders() []int32 {
	if s.ignoreEOS {
		return s.stopIDs
	}
	return append([]int32{tokenizer.EOS}, s.stopIDs...)
}

// judge fills in the text of a new token and whether the sequence ends with it.
func (s *sequence) judge(o *output, tok *tokenizer.Tokenizer) {
	enough := s.generated() >= s.minTokens
	switch {
	case enough && !s.ignoreEOS && o.token == tokenizer.EOS:
		o.finish = "stop"
	case enough && slices.Contains(s.stopIDs, o.token):
		o.finish, o.stop = "stop", o.token
	case s.generated() == s.maxTokens:
		o.finish = "length"
	}
	text := ""
	if o.finish != "stop" { // a token that stops is not part of the text
		text = tok.Delta(o.token, s.skipSpecial)
	}
	show, stop, stopped := s.stopText.add(text, s.generated() > s.minTokens)
	switch {
	case stopped:
		o.finish, o.stop = "stop", stop
	case o.finish != "":
		show += s.stopText.flush()
	}
	o.text = show
}
