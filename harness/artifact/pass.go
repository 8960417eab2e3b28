package artifact

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// A Pass is what one pass over a plan came to.
type Pass struct {
	Summary   Summary                 `json:"summary"`
	Expected  Expected                `json:"expected"`
	Anatomy   any                     `json:"ttft_anatomy"` // where the time to first token went; null: not known
	Witnesses any                     `json:"witnesses"`
	HitRatios any                     `json:"hit_ratios"`
	Counters  map[string]CounterDelta `json:"counters"` // by probe
}

// Expected is what the oracle says that usage must report.
type Expected struct {
	Law          string `json:"law"`
	MinHitTokens int    `json:"min_hit_tokens"`
	MaxHitTokens int    `json:"max_hit_tokens"`
	PromptTokens int    `json:"prompt_tokens"`
}

// CounterDelta is one endpoint around a pass. Delta lists the series that
// moved.
type CounterDelta struct {
	Before []row.Series `json:"before"`
	After  []row.Series `json:"after"`
	Delta  []row.Series `json:"delta"`
}

// A Summary has the fields of the original runner: means over the requests
// that ended properly, times in milliseconds.
type Summary struct {
	NumRequests       int      `json:"num_requests"`
	NumErrors         int      `json:"num_errors"`
	TTFTMean          *float64 `json:"ttft_ms_mean"`
	LatencyMean       *float64 `json:"latency_ms_mean"`
	QueueMean         *float64 `json:"queue_ms_mean"`
	LateMean          *float64 `json:"late_ms_mean"`
	ScheduledTTFTMean *float64 `json:"ttft_from_schedule_ms_mean"`
	OfferedReqPerS    *float64 `json:"offered_req_per_s"` // by the schedule; null in a closed loop
	PromptTokens      int      `json:"prompt_tokens_total"`
	CompletionTokens  int      `json:"completion_tokens_total"`
	PhaseElapsed      *float64 `json:"phase_elapsed_ms"`
	PromptTokPerS     *float64 `json:"phase_prompt_tok_per_s"`
	RequestsElapsed   *float64 `json:"all_requests_elapsed_ms"` // phase_elapsed_ms under its older name
	CacheHits         *int     `json:"cache_hits"`              // null, as in each request
	CacheChunks       *int     `json:"cache_chunks_total"`
	TraceHitRate      *float64 `json:"http_trace_cache_hit_rate"`
	AnswerAccuracy    *float64 `json:"answer_contains_accuracy"`            // null where no right answer is known
	ExternalHitRate   *float64 `json:"vllm_external_prefix_cache_hit_rate"` // of the engine's connector
	BackendHitRate    *float64 `json:"backend_server_cache_hit_rate"`       // of the cache server, in tokens
	UploadedDocuments int      `json:"uploaded_documents,omitempty"`        // before the pass
	UploadMS          *float64 `json:"upload_ms,omitempty"`
	PeakInFlight      int      `json:"peak_in_flight"`
	Occupancy         *float64 `json:"littles_law_ratio"`   // null in an open loop
	UsageCachedTokens *int     `json:"usage_cached_tokens"` // null if any request did not say
}

// Summarize computes the summary of a pass that took elapsed.
func Summarize(timelines []row.Timeline, elapsed time.Duration, peak int) Summary {
	s := Summary{NumRequests: len(timelines), PeakInFlight: peak, PhaseElapsed: milliseconds(elapsed, elapsed > 0)}
	var ttft, latency, queue, late, scheduled mean
	cached, known := 0, true
	for _, t := range timelines {
		if t.Status != row.OK {
			s.NumErrors++
			known = false
			continue
		}
		ttft.add(t.TTFT())
		latency.add(t.E2E())
		queue.add(t.QueueWait())
		late.add(t.Lateness())
		scheduled.add(t.ScheduledTTFT())
		if t.Usage != nil {
			s.PromptTokens += t.Usage.PromptTokens
			s.CompletionTokens += t.Usage.CompletionTokens
		}
		if n, ok := t.Cached(); ok {
			cached += n
		} else {
			known = false
		}
	}
	s.TTFTMean, s.LatencyMean, s.QueueMean = ttft.value(), latency.value(), queue.value()
	s.LateMean, s.ScheduledTTFTMean = late.value(), scheduled.value()
	if elapsed > 0 {
		s.PromptTokPerS = finite(float64(s.PromptTokens) / elapsed.Seconds())
	}
	if known {
		s.UsageCachedTokens = &cached
	}
	s.RequestsElapsed = s.PhaseElapsed
	return s
}

// Occupy fills in the share of the requests that may be in flight which were,
// by Little's law: mean latency times requests, over elapsed time times
// concurrency. A closed loop over many requests comes to 0.9 to 1.0; above that
// latency and elapsed time cannot both be right.
func (s *Summary) Occupy(concurrency int) {
	if s.LatencyMean == nil || s.PhaseElapsed == nil || *s.PhaseElapsed <= 0 || concurrency < 1 || s.NumErrors > 0 {
		return // what failed has no latency, and took its time
	}
	s.Occupancy = finite(*s.LatencyMean * float64(s.NumRequests) / (*s.PhaseElapsed * float64(min(concurrency, s.NumRequests))))
}

// Moved lists the series that changed between two snapshots, with the change
// as value; a series that is new counts from 0.
func Moved(before, after row.Snapshot) []row.Series {
	was := make(map[string]float64, len(before.Series))
	for _, s := range before.Series {
		was[seriesKey(s)] = s.Value
	}
	var moved []row.Series
	for _, s := range after.Series {
		if d := s.Value - was[seriesKey(s)]; d != 0 {
			moved = append(moved, row.Series{Name: s.Name, Labels: s.Labels, Value: d})
		}
	}
	return moved
}

type mean struct {
	sum time.Duration
	n   int
}

func (m *mean) add(d time.Duration, ok bool) {
	if ok {
		m.sum += d
		m.n++
	}
}

func (m *mean) value() *float64 {
	if m.n == 0 {
		return nil
	}
	return milliseconds(m.sum/time.Duration(m.n), true)
}

// seriesKey identifies a series by its name and labels, in any order.
func seriesKey(s row.Series) string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&b, "|%s=%q", label, s.Labels[label])
	}
	return b.String()
}
