package model

import (
	"math"
	"math/rand/v2"
)

// Greedy returns the id of the highest logit, the lowest id among equals. A
// NaN counts as higher than any number, as it does in torch.argmax, so logits
// that are all NaN, which is what NaN in the KV makes of them, give id 0: what
// vLLM 0.32.0 was observed to return. It panics where there are no logits.
func Greedy(logits []float32) int32 {
	best, greatest := 0, logits[0]
	for id, logit := range logits {
		if above(logit, greatest) {
			best, greatest = id, logit
		}
	}
	return int32(best)
}

// above orders logits, NaN before all numbers.
func above(a, b float32) bool { return a > b || a != a && b == b }

// Logprobs returns the natural logarithm of the probability of a token and the
// top ids with theirs, highest first, as Greedy orders them; fewer where the
// vocabulary is smaller. With a NaN among the logits every logprob is NaN
// (vLLM 0.32.0 reports those as null). It panics where the token is outside
// the vocabulary.
func Logprobs(logits []float32, token int32, top int) (logprob float64, topIDs []int32, topLogprobs []float64) {
	greatest, logSum := normalizer(logits)
	topIDs = highest(logits, top)
	topLogprobs = make([]float64, len(topIDs))
	for i, id := range topIDs {
		topLogprobs[i] = float64(logits[id]) - greatest - logSum
	}
	return float64(logits[token]) - greatest - logSum, topIDs, topLogprobs
}

// normalizer returns what is to be subtracted from a logit to make it a
// logprob, in two parts: in one, a large logit would swallow the other.
func normalizer(logits []float32) (greatest, logSum float64) {
	greatest = float64(logits[Greedy(logits)])
	var sum float64
	for _, logit := range logits {
		sum += math.Exp(float64(logit) - greatest)
	}
	return greatest, math.Log(sum)
}

// highest returns the ids of the n highest logits in order.
func highest(logits []float32, n int) []int32 {
	n = max(0, min(n, len(logits)))
	ids := make([]int32, 0, n+1)
	for id, logit := range logits {
		if len(ids) == n && (n == 0 || !above(logit, logits[ids[n-1]])) {
			continue
		}
		at := len(ids)
		for at > 0 && above(logit, logits[ids[at-1]]) {
			at--
		}
		ids = append(ids, 0)
		copy(ids[at+1:], ids[at:])
		ids[at] = int32(id)
		ids = ids[:min(len(ids), n)]
	}
	return ids
}

// A Sampler draws tokens from logits; its draws are decided by its seed. It
// is not safe for concurrent use: a request has its own.
type Sampler struct {
	source      *rand.Rand
	temperature float64
}

// NewSampler returns a sampler at a temperature. Temperature 0 (or what is no
// temperature: below zero or NaN) is greedy.
func NewSampler(seed uint64, temperature float64) *Sampler {
	return &Sampler{rand.New(rand.NewPCG(seed, 0x73616d706c65)), temperature}
}

// Sample returns a token drawn from softmax(logits/temperature). Logits with a
// NaN among them have no distribution: the answer is that of Greedy. Each call
// uses one number of the stream, so equal seeds stay in step even after
// different logits.
func (s *Sampler) Sample(logits []float32) int32 {
	best := Greedy(logits)
	if !(s.temperature > 0) {
		return best
	}
	draw := s.source.Float64()
	greatest := logits[best]
	if greatest != greatest {
		return best
	}
	weight := func(logit float32) float64 {
		return math.Exp((float64(logit) - float64(greatest)) / s.temperature)
	}
	var sum float64
	for _, logit := range logits {
		sum += weight(logit)
	}
	left := draw * sum
	for id, logit := range logits {
		if left -= weight(logit); left < 0 {
			return int32(id)
		}
	}
	return best // all of the sum was used up by rounding
}
