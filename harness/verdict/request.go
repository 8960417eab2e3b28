package verdict

import (
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// CheckRequest checks that one request ended as it was asked to: properly,
// over the prompt that was sent, with the output length that was asked for and
// tokens that match usage. A request that failed has one finding, its failure.
func CheckRequest(phase string, want row.Request, got row.Timeline) []row.Finding {
	if f, failed := failure(phase, want, got); failed {
		return []row.Finding{f}
	}
	var findings []row.Finding
	add := func(code row.Code, advice, evidence string, args ...any) {
		findings = append(findings, row.Finding{
			Code: code, Phase: phase, Request: want.ID, Evidence: fmt.Sprintf(evidence, args...), Advice: advice,
		})
	}
	if got.Usage == nil {
		add(row.WitnessMissing, "the server must answer stream_options.include_usage",
			"the answer has no usage, so nobody says how long a prompt the server saw (%d tokens were sent)", len(want.Prompt))
	} else {
		checkUsage(add, want, got)
	}
	if len(got.Prompt) > 0 && !slices.Equal(got.Prompt, want.Prompt) {
		at := firstDifference(want.Prompt, got.Prompt)
		add(row.PromptDiffers, "what was answered is not what was asked: the prompt was changed or put together otherwise on its way",
			"the server says that it answered a prompt of %d tokens that differs from the one of %d that was sent from token %d on", len(got.Prompt), len(want.Prompt), at)
	}
	checkOutput(add, want, got)
	return findings
}

type add = func(code row.Code, advice, evidence string, args ...any)

func checkUsage(add add, want row.Request, got row.Timeline) {
	u := got.Usage
	if u.PromptTokens != len(want.Prompt) {
		add(row.PromptLength, "token ids were sent: the server dropped some, or added its own (a BOS token, a template)",
			"%d prompt tokens were sent, the server counts %d", len(want.Prompt), u.PromptTokens)
	}
	if u.CachedTokens != nil && (*u.CachedTokens > u.PromptTokens || *u.CachedTokens < 0) {
		add(row.ImpossibleCounter, "no hit rate can be taken from this server's usage",
			"usage says that %d of %d prompt tokens were cached", *u.CachedTokens, u.PromptTokens)
	}
	if len(got.Tokens) > 0 && len(got.Tokens) != u.CompletionTokens {
		add(row.WitnessDisagrees, "chunks were lost or repeated on the way, or usage is wrong",
			"%d token ids arrived, usage says %d", len(got.Tokens), u.CompletionTokens)
	}
}

func checkOutput(add add, want row.Request, got row.Timeline) {
	n := len(got.Tokens)
	if n == 0 && got.Usage != nil {
		n = got.Usage.CompletionTokens
	}
	known := n > 0 || got.Usage != nil
	switch {
	case !known || want.MaxTokens <= 0:
	case n > want.MaxTokens:
		add(row.RequestFailed, "max_tokens is not honoured, so lengths cannot be compared",
			"the answer has %d tokens, max_tokens was %d", n, want.MaxTokens)
	case n < want.MaxTokens && (want.IgnoreEOS && len(want.Stop) == 0 || got.FinishReason == "length"):
		add(row.ShortOutput, "prompt and output may not fit into the server's context, or it lowers max_tokens",
			"the answer has %d of %d tokens, finish reason %q", n, want.MaxTokens, got.FinishReason)
	}
}

// failure is the finding of a request that did not end properly.
func failure(phase string, want row.Request, got row.Timeline) (row.Finding, bool) {
	f := row.Finding{Phase: phase, Request: want.ID}
	var what string
	switch got.Status {
	case row.OK:
		return f, false
	case row.Unreachable:
		f.Code, what = row.ServerDied, "no answer"
		f.Advice = "look at the end of the server's log"
	case row.Stall:
		f.Code, what = row.Stalled, fmt.Sprintf("nothing more came after %d chunks", len(got.Chunks))
		f.Advice = "a backend that died can block the engine: look at the timeout of its connector"
	case row.CutOff:
		f.Code, what = row.Truncated, fmt.Sprintf("the stream ended after %d chunks without a finish reason", len(got.Chunks))
		f.Advice = "look at the server's log and at proxies in between"
	case row.HTTPError:
		f.Code, what = row.RequestFailed, fmt.Sprintf("HTTP status %d", got.HTTP)
		f.Advice = "the request itself is at fault, or the server is overloaded"
	case row.StreamError:
		f.Code, what = row.RequestFailed, fmt.Sprintf("an error after %d chunks in a stream of HTTP status %d", len(got.Chunks), got.HTTP)
		f.Advice = "look at the server's log: the status alone says that all is well"
	case row.Cancelled:
		f.Code, what = row.RequestFailed, "cancelled by this run"
		f.Advice = "run it again"
	default:
		f.Code, what = row.RequestFailed, fmt.Sprintf("ended as %q", got.Status)
		f.Advice = "the client does not say how the request ended: that is a bug of the client"
	}
	f.Evidence = what
	if got.Err != "" {
		f.Evidence += ": " + got.Err
	}
	return f, true
}

// CheckTokens checks that the generated ids are in the vocabulary, [0, vocab);
// 0: nobody knows how large it is.
func CheckTokens(phase string, got row.Timeline, vocab int) []row.Finding {
	for i, id := range got.Tokens {
		if id < 0 || vocab > 0 && int(id) >= vocab {
			return []row.Finding{{
				Code: row.RequestFailed, Phase: phase, Request: got.ID,
				Evidence: fmt.Sprintf("token %d of the answer is id %d, the vocabulary has %d", i, id, vocab),
				Advice:   "the answer is not the model's",
			}}
		}
	}
	return nil
}

// CheckHit checks the cached tokens that usage reports for one request against
// what the oracle gives under the law called law. What usage does not say is
// missing from the pass as a whole, which Reconcile reports.
func CheckHit(phase string, got row.Timeline, expected fixtures.Interval, law string) []row.Finding {
	cached, known := got.Cached()
	if !known || expected.Contains(cached) {
		return nil
	}
	code, advice := outside(phase, float64(cached), expected)
	return []row.Finding{{
		Code: code, Phase: phase, Request: got.ID, Advice: advice,
		Evidence: fmt.Sprintf("%d of %d prompt tokens were cached, the plan gives %s under %s", cached, got.Usage.PromptTokens, expected, law),
	}}
}

// outside names a hit count that the oracle does not allow.
func outside(phase string, hits float64, expected fixtures.Interval) (row.Code, string) {
	switch {
	case hits < float64(expected.Min):
		return row.HitBelowOracle, "stores were lost, evicted or not settled, or the row's law is another one"
	case phase == "cold":
		return row.ColdNotCold, "something primed the cache: an earlier run with the same content, a warm-up, a reset that does nothing"
	}
	return row.HitAboveOracle, "the cache claims tokens that the plan does not repeat: KV of something else, or the row's law is another one"
}
