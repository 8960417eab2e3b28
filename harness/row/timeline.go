package row

import (
	"time"

	"github.com/kvproof/kvproof/fixtures"
)

// A Request is one completion to ask a server for, as token ids.
type Request struct {
	ID          string  // sent as x-request-id
	Prompt      []int32 // token ids, sent as ids
	MaxTokens   int
	IgnoreEOS   bool
	Temperature float64
	TopP        float64         // 0: not sent, which is 1
	Seed        uint64          // of the sampling
	Logprobs    int             // top logprobs per token; 0: none
	CacheSalt   string          // empty: not sent
	Stop        []int32         // ids that end the output; nil: not sent
	Parts       *fixtures.Parts // what Prompt is made of; nil: one piece
	SkipReuse   bool            // answer without the cache, where the row can
}

// A Status says how a request ended. The reader of the stream sets it; the
// pass decides what it is worth.
type Status string

// The ways in which a request ends.
const (
	OK          Status = "ok"          // HTTP 200, a finish reason, no error event
	HTTPError   Status = "http-error"  // another HTTP status
	StreamError Status = "error"       // an error event inside a 200 stream, or bytes that are not the protocol
	CutOff      Status = "truncated"   // the stream ended before a finish reason
	Stall       Status = "stalled"     // nothing arrived within the stall deadline
	Unreachable Status = "unreachable" // no connection, or it broke before any answer
	Cancelled   Status = "cancelled"   // our own context ended
)

// A Warning is something odd about a stream that ended well enough.
type Warning string

// The warnings.
const (
	MissingDone    Warning = "missing_done"          // no [DONE] at the end
	NoVisibleToken Warning = "no_visible_token"      // finished without any output
	CachedGTPrompt Warning = "cached_gt_prompt"      // usage says more cached than prompt tokens
	Coalesced      Warning = "coalesced_chunks"      // several chunks came in one read: gaps between them mean nothing
	MissingUsage   Warning = "missing_usage"         // usage was asked for and did not come
	TokensMismatch Warning = "tokens_gt_or_lt_usage" // token ids counted differ from usage
)

// A TokenLogprob is the logprob of one generated token with its alternatives,
// best first. NaN stands for a null in the answer: not finite in the model.
type TokenLogprob struct {
	Logprob float64
	Top     []float64 // logprobs of the top tokens, best first
}

// A Chunk is one event of the stream that carried output.
type Chunk struct {
	At     time.Time // when the read that completed it returned
	Tokens int       // token ids in it; 0: unknown
	Text   string
	Read   int // index of the network read that completed it: equal for chunks that came together
}

// Usage is the server's own account of a request. A nil pointer is unknown,
// never 0.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	CachedTokens     *int
}

// A ToolCall is a function call in a chat answer, its arguments joined.
type ToolCall struct{ Name, Arguments string }

// A Timeline is what one request did, every chunk stamped with the monotonic
// clock at the read that completed it. A zero time means that it did not
// happen.
type Timeline struct {
	ID     string
	Status Status
	Err    string // never empty unless Status is OK
	HTTP   int    // HTTP status; 0: no answer

	Scheduled    time.Time // when the schedule wanted it sent
	Ready        time.Time // when it was due and had a slot: nothing but the client held it back from then on
	Sent         time.Time // just before the request was written
	Connected    time.Time // connection at hand
	FirstByte    time.Time // first byte of the answer's body
	FirstToken   time.Time // first chunk that carried a token of any kind
	FirstContent time.Time // first chunk that carried visible content
	LastToken    time.Time // last chunk that carried a token
	End          time.Time // end of the stream

	Chunks       []Chunk        // those that carried output, in order
	Text         string         // visible content
	Reasoning    string         // what a reasoning model thinks aloud, kept apart
	Prompt       []int32        // ids of the prompt as the server saw it, where it returns them
	Tokens       []int32        // generated ids, where the server returns them
	Logprobs     []TokenLogprob // one per token, where asked for
	ToolCalls    []ToolCall
	FinishReason string
	Usage        *Usage
	Warnings     []Warning
}

// TTFT is the time to first token, from just before the request was written;
// false if no token came.
func (t Timeline) TTFT() (time.Duration, bool) { return since(t.Sent, t.FirstToken) }

// ScheduledTTFT is TTFT from the moment at which the schedule wanted the
// request sent: it includes the wait for a slot.
func (t Timeline) ScheduledTTFT() (time.Duration, bool) { return since(t.Scheduled, t.FirstToken) }

// E2E is the time from just before the request was written to its last token.
func (t Timeline) E2E() (time.Duration, bool) { return since(t.Sent, t.LastToken) }

// QueueWait is how long the request waited for its slot at the client.
func (t Timeline) QueueWait() (time.Duration, bool) { return since(t.Scheduled, t.Sent) }

// ScheduledE2E is E2E from the moment at which the schedule wanted the request
// sent.
func (t Timeline) ScheduledE2E() (time.Duration, bool) { return since(t.Scheduled, t.LastToken) }

// Lateness is how late the client itself sent the request: from when it was due
// and had a slot until just before it was written.
func (t Timeline) Lateness() (time.Duration, bool) { return since(t.Ready, t.Sent) }

// Cached is the number of cached prompt tokens that usage reports; false:
// unknown, or impossible (more than the prompt).
func (t Timeline) Cached() (int, bool) {
	if t.Usage == nil || t.Usage.CachedTokens == nil || *t.Usage.CachedTokens > t.Usage.PromptTokens {
		return 0, false
	}
	return *t.Usage.CachedTokens, true
}

func since(from, to time.Time) (time.Duration, bool) {
	if from.IsZero() || to.IsZero() {
		return 0, false
	}
	return to.Sub(from), true
}
