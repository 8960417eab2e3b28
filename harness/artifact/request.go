package artifact

import (
	"cmp"
	"math"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// A Request is one request of a pass. Times are in milliseconds; a null is
// something that did not happen or is not known.
type Request struct {
	SampleID         int        `json:"sample_id"`
	Dataset          string     `json:"dataset"`
	GeneratedText    string     `json:"generated_text"`
	TTFT             *float64   `json:"ttft_ms"`
	Latency          *float64   `json:"latency_ms"`
	PromptTokens     *int       `json:"prompt_tokens"`
	CompletionTokens *int       `json:"completion_tokens"`
	Error            string     `json:"error"`
	Queue            *float64   `json:"queue_ms"`
	RequestID        string     `json:"request_id"`
	Group            string     `json:"group,omitempty"`
	Status           row.Status `json:"status"`
	HTTP             int        `json:"http_status"`
	CachedTokens     *int       `json:"cached_tokens"`
	ScheduledTTFT    *float64   `json:"ttft_from_schedule_ms"`
	ScheduledLatency *float64   `json:"latency_from_schedule_ms"`
	Late             *float64   `json:"late_ms"` // the part of queue_ms that was the client's own
	FinishReason     string     `json:"finish_reason"`
	TokenIDs         []int32    `json:"token_ids"`
	Logprobs         []*float64 `json:"logprobs,omitempty"`
	Chunks           []float64  `json:"chunk_ms"` // arrival of each output chunk, from the send
	Warnings         []string   `json:"warnings,omitempty"`
}

// NewRequest records what a request of workload did.
func NewRequest(workload string, r fixtures.Request, t row.Timeline) Request {
	record := Request{
		SampleID: r.Index, Dataset: cmp.Or(r.Source, workload), GeneratedText: t.Text, Error: t.Err,
		RequestID: t.ID, Group: r.Group, Status: t.Status, HTTP: t.HTTP,
		FinishReason: t.FinishReason, TokenIDs: t.Tokens,
		TTFT: milliseconds(t.TTFT()), Latency: milliseconds(t.E2E()),
		Queue: milliseconds(t.QueueWait()), ScheduledTTFT: milliseconds(t.ScheduledTTFT()),
		ScheduledLatency: milliseconds(t.ScheduledE2E()), Late: milliseconds(t.Lateness()),
	}
	if u := t.Usage; u != nil {
		record.PromptTokens, record.CompletionTokens, record.CachedTokens = &u.PromptTokens, &u.CompletionTokens, u.CachedTokens
	}
	for _, p := range t.Logprobs {
		record.Logprobs = append(record.Logprobs, finite(p.Logprob))
	}
	for _, c := range t.Chunks {
		record.Chunks = append(record.Chunks, float64(c.At.Sub(t.Sent))/float64(time.Millisecond))
	}
	for _, w := range t.Warnings {
		record.Warnings = append(record.Warnings, string(w))
	}
	return record
}

func milliseconds(d time.Duration, ok bool) *float64 {
	if !ok {
		return nil
	}
	return finite(float64(d) / float64(time.Millisecond))
}

// finite is nil for what JSON cannot say.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
