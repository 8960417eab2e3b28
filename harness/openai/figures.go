package openai

import (
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A TokenSource says where a count of output tokens comes from. It is never
// the length that was asked for, and never the number of chunks.
type TokenSource string

// The sources of a token count.
const (
	FromUsage TokenSource = "usage"
	FromIDs   TokenSource = "ids" // no usage came; the ids of the stream were counted
	Unknown   TokenSource = "unknown"
)

// OutputTokens is the number of generated tokens: usage's, else the ids that
// came, else unknown (0). An answer that failed has no known length.
func OutputTokens(t row.Timeline) (int, TokenSource) {
	switch {
	case t.Status != row.OK:
		return 0, Unknown
	case t.Usage != nil:
		return t.Usage.CompletionTokens, FromUsage
	case len(t.Tokens) > 0:
		return len(t.Tokens), FromIDs
	}
	return 0, Unknown
}

// HitRate is the share of the prompt that usage reports as cached, 0 to 1;
// false: unknown, impossible, or no prompt.
func HitRate(t row.Timeline) (float64, bool) {
	cached, ok := t.Cached()
	if !ok || t.Usage.PromptTokens == 0 {
		return 0, false
	}
	return float64(cached) / float64(t.Usage.PromptTokens), true
}

// InLatency reports whether the request may enter latency percentiles and
// throughput: only an answer that ended properly does.
func InLatency(t row.Timeline) bool { return t.Status == row.OK }

// InTTFT reports whether the request has a time to first token to count. An
// empty answer succeeds without one.
func InTTFT(t row.Timeline) bool { return InLatency(t) && !t.FirstToken.IsZero() }

// ConnectTime is the part of TTFT that went into getting a connection: next
// to nothing where one was at hand.
func ConnectTime(t row.Timeline) (time.Duration, bool) {
	if t.Sent.IsZero() || t.Connected.IsZero() {
		return 0, false
	}
	return t.Connected.Sub(t.Sent), true
}

// ChunkGaps are the times between the chunks that carried output. A chunk may
// hold several tokens (speculative decoding, a stream interval, load), so
// they are not latencies of tokens; ITL is.
func ChunkGaps(t row.Timeline) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(t.Chunks); i++ {
		gaps = append(gaps, t.Chunks[i].At.Sub(t.Chunks[i-1].At))
	}
	return gaps
}

// ITL are the inter-token latencies: for each chunk after the first, its gap
// divided by its tokens, once per token. It is nil where the tokens of the
// chunks are unknown: ids say, or usage that counts as many tokens as chunks
// came. Valid is false where chunks came in one read (a proxy glued them, or
// the client was late), for then the gaps are not the server's, and where
// there is nothing to measure.
func ITL(t row.Timeline) (latencies []time.Duration, valid bool) {
	total, source := OutputTokens(t)
	single := source == FromUsage && total == len(t.Chunks)
	for i, gap := range ChunkGaps(t) {
		tokens := t.Chunks[i+1].Tokens
		if tokens == 0 && single {
			tokens = 1
		}
		if tokens == 0 {
			return nil, false
		}
		latencies = append(latencies, slices.Repeat([]time.Duration{gap / time.Duration(tokens)}, tokens)...)
	}
	return latencies, len(latencies) > 0 && !coalesced(t.Chunks)
}

// TPOT is the time per output token after the first: (last − first token) /
// (tokens − 1), as upstream's benchmark defines it. False: the number of
// tokens is unknown or below 2, or all came in one read.
func TPOT(t row.Timeline) (time.Duration, bool) {
	tokens, source := OutputTokens(t)
	if source == Unknown || tokens < 2 || len(t.Chunks) < 2 || t.Chunks[0].Read == t.Chunks[len(t.Chunks)-1].Read {
		return 0, false
	}
	return t.LastToken.Sub(t.FirstToken) / time.Duration(tokens-1), true
}

// coalesced reports whether two chunks came in one read.
func coalesced(chunks []row.Chunk) bool {
	for i := 1; i < len(chunks); i++ {
		if chunks[i].Read == chunks[i-1].Read {
			return true
		}
	}
	return false
}
