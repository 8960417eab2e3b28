package engine

import (
	"context"
	"net/http"
)

// A shape is how an endpoint writes what its sequences say.
type shape interface {
	// chunks are the events for one output. counts is nil unless the client
	// wants usage on every event.
	chunks(o output, counts *tokenCounts) []any
	// usage is the last event: tokens counted over all prompts.
	usage(counts tokenCounts, cached int) any
	// whole is the answer without streaming, one completed per prompt.
	whole(answers []completed, counts tokenCounts, cached int) any
}

// completed is the output of one prompt as a whole.
type completed struct {
	text     string
	tokens   []int32
	logprobs []*tokenLogprob // empty if not asked for
	finish   string
	stop     any
}

// tokenCounts are the numbers of a usage object. All are in tokens.
type tokenCounts struct {
	Prompt     int `json:"prompt_tokens"`
	Total      int `json:"total_tokens"`
	Completion int `json:"completion_tokens"`
}

func countTokens(prompt, completion int) tokenCounts {
	return tokenCounts{Prompt: prompt, Total: prompt + completion, Completion: completion}
}

// optional keeps a nil pointer from becoming a value that is written as null.
func optional(counts *tokenCounts) any {
	if counts == nil {
		return nil
	}
	return counts
}

// streamUsage is the usage of a last event; details differ by endpoint.
type streamUsage struct {
	tokenCounts
	Details any `json:"prompt_tokens_details"`
}

// wholeUsage is the usage of an answer that is not streamed.
type wholeUsage struct {
	tokenCounts
	Details           wholeDetails `json:"prompt_tokens_details"`
	CompletionDetails *struct{}    `json:"completion_tokens_details"`
}

type wholeDetails struct {
	CachedTokens       int  `json:"cached_tokens"`
	CreatedCacheTokens *int `json:"created_cache_tokens"`
	MultimodalTokens   *int `json:"multimodal_tokens"`
}

// answer runs a request to its end and writes what comes of it.
func (e *Engine) answer(w http.ResponseWriter, r *http.Request, q *request, s shape) {
	stop, err := e.start(r.Context(), q)
	if err != nil {
		writeError(w, err)
		return
	}
	defer stop() // also when the client is gone: the sequences notice
	if q.stream {
		e.stream(r.Context(), w, q, s)
	} else {
		e.collect(r.Context(), w, q, s)
	}
}

// stream sends every token as it comes. It returns early when the client is
// gone.
func (e *Engine) stream(client context.Context, w http.ResponseWriter, q *request, s shape) {
	events, err := newEventStream(w)
	if err != nil {
		return
	}
	generated := make([]int, len(q.sequences))
	total, cached := 0, 0
	for left := len(q.sequences); left > 0; {
		o, ok := q.next(client)
		if !ok {
			return
		}
		if o.err != nil {
			_ = events.fail(o.err) // the stream ends here in any case
			return
		}
		if total == 0 {
			cached = o.cached // one prompt's count for all: as observed
		}
		total++
		generated[o.prompt]++
		var counts *tokenCounts
		if q.continuousUsage {
			c := countTokens(len(q.sequences[o.prompt].prompt), generated[o.prompt])
			counts = &c
		}
		for _, event := range s.chunks(o, counts) {
			if events.send(event) != nil {
				return
			}
		}
		if o.finish != "" {
			left--
		}
	}
	if q.includeUsage && events.send(s.usage(countTokens(q.promptTokens(), total), cached)) != nil {
		return
	}
	_ = events.done() // nothing is left to do if it fails
}

// collect answers once, when all prompts are done.
func (e *Engine) collect(client context.Context, w http.ResponseWriter, q *request, s shape) {
	answers := make([]completed, len(q.sequences))
	total, cached := 0, 0
	for left := len(q.sequences); left > 0; {
		o, ok := q.next(client)
		if !ok {
			return
		}
		if o.err != nil {
			writeError(w, o.err)
			return
		}
		total++
		if o.prompt == len(answers)-1 {
			cached = o.cached // the last prompt's count for all
		}
		a := &answers[o.prompt]
		a.text += o.text
		a.tokens = append(a.tokens, o.token)
		if o.logprob != nil {
			a.logprobs = append(a.logprobs, o.logprob)
		}
		if o.finish != "" {
			a.finish, a.stop = o.finish, o.stop
			left--
		}
	}
	writeJSON(w, http.StatusOK, s.whole(answers, countTokens(q.promptTokens(), total), cached))
}

// next waits for an output of any prompt; false when the client is gone.
func (q *request) next(client context.Context) (output, bool) {
	select {
	case o := <-q.out:
		return o, true
	case <-client.Done():
		return output{}, false
	}
}
