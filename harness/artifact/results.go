package artifact

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// Results is a cycle in the form of results.json of DaseR's benchmark runner,
// so that what reads those reads these. Times are milliseconds, rates tokens
// per second, ratios fractions; a null is not known. Correctness is at the top
// for every load generator.
type Results struct {
	Manifest    ServiceManifest  `json:"manifest"`
	Config      ResultConfig     `json:"config"`
	Result      map[string]Phase `json:"result"` // baseline, cold, warm, reference
	Correctness Correctness      `json:"correctness"`
}

// A ServiceManifest is a row's services in the original's words.
type ServiceManifest struct {
	RunID     string              `json:"run_id"`
	Backend   string              `json:"backend"` // vllm, lmcache, daser
	Row       string              `json:"row"`
	ReuseMode string              `json:"reuse_mode"`
	Model     string              `json:"model"`
	StoreDir  string              `json:"store_dir"`
	L1Bytes   *int64              `json:"l1_size_bytes"`
	L2Bytes   *int64              `json:"l2_size_bytes"`
	SkipL2    bool                `json:"skip_l2"`
	Endpoints map[string]Endpoint `json:"endpoints"`
	LogDir    string              `json:"log_dir"`
	PIDFile   *string             `json:"pid_file"` // null: the services run in this process, or somebody else started them
	BlockSize int                 `json:"block_size"`
}

// A ResultConfig is what was prepared, and the sizes that the services got.
type ResultConfig struct {
	Prepared
	L1Bytes     *int64  `json:"manifest_l1_size_bytes"`
	L1Size      *string `json:"manifest_l1_size"`
	L2Bytes     *int64  `json:"manifest_l2_size_bytes"`
	L2Size      *string `json:"manifest_l2_size"`
	SkipL2      bool    `json:"manifest_skip_l2"`
	StorageTier string  `json:"storage_tier"` // l1-only, l1+l2
}

// WithSizes is the config of services with that manifest.
func (p Prepared) WithSizes(m ServiceManifest) ResultConfig {
	c := ResultConfig{Prepared: p, L1Bytes: m.L1Bytes, L2Bytes: m.L2Bytes, SkipL2: m.SkipL2, StorageTier: "l1+l2"}
	c.L1Size, c.L2Size = humanSize(m.L1Bytes), humanSize(m.L2Bytes)
	if m.SkipL2 {
		c.StorageTier = "l1-only"
	}
	return c
}

func humanSize(n *int64) *string {
	if n == nil {
		return nil
	}
	size := fixtures.HumanSize(*n)
	return &size
}

// A Phase is one pass.
type Phase struct {
	Summary  Summary         `json:"summary"`
	Metrics  PhaseMetrics    `json:"metrics"`
	Requests []ResultRequest `json:"requests,omitempty"`
}

// PhaseMetrics are the changes of all counters over a pass, by name (summed
// over its label sets) and by name{labels}, and the hit rates made of them.
// Buckets of histograms and times of creation are left out.
type PhaseMetrics struct {
	Engine    map[string]float64 `json:"vllm_prometheus"`
	Backend   map[string]float64 `json:"backend_prometheus"`
	Status    any                `json:"backend_status"` // as it was after the pass; null: there is none
	HitRatios any                `json:"hit_ratios"`
}

// A ResultRequest has the original's fields of a request.
type ResultRequest struct {
	SampleID         int      `json:"sample_id"`
	Dataset          string   `json:"dataset"`
	GeneratedText    string   `json:"generated_text"`
	TTFT             *float64 `json:"ttft_ms"`
	Latency          *float64 `json:"latency_ms"`
	PromptTokens     *int     `json:"prompt_tokens"`
	CompletionTokens *int     `json:"completion_tokens"`
	Error            *string  `json:"error"`
	CacheHits        *int     `json:"cache_hits"`         // null: the request's own trace of the cache is not asked for
	CacheChunks      *int     `json:"cache_chunks_total"` // likewise
	Queue            *float64 `json:"queue_ms"`
}

// Result is a request in the original's fields.
func (r Request) Result() ResultRequest {
	result := ResultRequest{
		SampleID: r.SampleID, Dataset: r.Dataset, GeneratedText: r.GeneratedText, TTFT: r.TTFT, Latency: r.Latency,
		PromptTokens: r.PromptTokens, CompletionTokens: r.CompletionTokens, Queue: r.Queue,
	}
	if r.Error != "" {
		result.Error = &r.Error
	}
	return result
}

// Correctness is how the outputs of the two passes compare.
type Correctness struct {
	Available      bool       `json:"available"`
	Matches        int        `json:"matches"`
	Mismatches     int        `json:"mismatches"`
	Total          int        `json:"total"`
	Accuracy       *float64   `json:"accuracy"`
	LengthMismatch bool       `json:"length_mismatch"`
	Reason         string     `json:"reason,omitempty"` // why it is not available
	Details        []Mismatch `json:"mismatch_details"`
}

// A Mismatch is one request whose outputs differ.
type Mismatch struct {
	SampleID int    `json:"sample_id"`
	Cold     string `json:"cold"`
	Warm     string `json:"warm"`
}

// Changes are the changes of the series of a page.
func Changes(before, after row.Snapshot) map[string]float64 {
	was := make(map[string]float64, len(before.Series))
	for _, s := range before.Series {
		was[seriesKey(s)] = s.Value
	}
	changes := make(map[string]float64)
	for _, s := range after.Series {
		if strings.HasSuffix(s.Name, "_bucket") || strings.HasSuffix(s.Name, "_created") {
			continue
		}
		change := s.Value - was[seriesKey(s)]
		changes[s.Name] += change
		if len(s.Labels) > 0 {
			changes[labelled(s)] = change
		}
	}
	return changes
}

// labelled is a series as a metrics page writes it.
func labelled(s row.Series) string {
	var pairs []string
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", label, s.Labels[label]))
	}
	return s.Name + "{" + strings.Join(pairs, ",") + "}"
}

// WriteResults writes results.json.
func (c *Cycle) WriteResults(r Results) error {
	if c == nil {
		return nil
	}
	return writeJSON(filepath.Join(c.dir, "results.json"), r)
}
