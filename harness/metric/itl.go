package metric

import (
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// coalescedLimit is the share of the chunks after a request's first that may
// have come together with another one before the times between them stop
// saying anything about the server.
const coalescedLimit = 0.1

// InterTokenLatencies are the times between tokens, in nanoseconds, over all
// requests. The tokens of a chunk share its gap equally, each counted once: a
// chunk may hold several (speculative decoding, a stream interval). Chunks
// that came in one network read are one chunk, for the gap of 0 between them
// is the reader's and not the server's.
//
// Not valid: more than a tenth of the chunks came together with another (a
// proxy or a late client glued them), the tokens of a chunk after the first
// are unknown, or no request has a second read.
func InterTokenLatencies(timelines []row.Timeline) (latencies []float64, valid bool) {
	glued, following := 0, 0
	for _, t := range timelines {
		single := onePerChunk(t)
		for i := 1; i < len(t.Chunks); i++ {
			following++
			if t.Chunks[i].Read == t.Chunks[i-1].Read {
				glued++
			}
		}
		for i := 0; i < len(t.Chunks); {
			next, tokens, known := sameRead(t.Chunks, i, single)
			if i > 0 && !known {
				return nil, false
			}
			if i > 0 {
				gap := float64(t.Chunks[i].At.Sub(t.Chunks[i-1].At))
				latencies = append(latencies, slices.Repeat([]float64{gap / float64(tokens)}, tokens)...)
			}
			i = next
		}
	}
	valid = len(latencies) > 0 && float64(glued) <= coalescedLimit*float64(following)
	return latencies, valid
}

// sameRead is the end of the run of chunks from i on that came in one read,
// and their tokens.
func sameRead(chunks []row.Chunk, i int, single bool) (end, tokens int, known bool) {
	known = true
	for end = i; end < len(chunks) && chunks[end].Read == chunks[i].Read; end++ {
		n := chunks[end].Tokens
		if n == 0 && single {
			n = 1
		}
		tokens += n
		known = known && n > 0
	}
	return end, tokens, known
}

// onePerChunk says whether usage counts as many tokens as chunks came, which
// tells the tokens of each where the ids are not returned.
func onePerChunk(t row.Timeline) bool {
	return t.Usage != nil && t.Usage.CompletionTokens == len(t.Chunks)
}
