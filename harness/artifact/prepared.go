package artifact

import (
	"math"
	"path/filepath"

	"github.com/kvproof/kvproof/fixtures"
)

// GenParams are how tokens are chosen.
type GenParams struct {
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	Seed        uint64  `json:"seed"`
}

// Prepared is what is known about a workload before anything runs, in the form
// of the config of DaseR's prepare.json. The derived sizes are what its rules
// give the tiers of a cache.
type Prepared struct {
	Dataset         string    `json:"dataset"`
	NumSamples      int       `json:"num_samples"`
	MaxInflight     int       `json:"max_inflight"`
	GenParams       GenParams `json:"gen_params"`
	PromptTokens    int       `json:"total_prompt_tokens"`
	Blocks          int       `json:"total_blocks"`
	MaxPromptBlocks int       `json:"max_prompt_blocks"`
	BlockSize       int       `json:"block_size"`
	L1Bytes         int64     `json:"derived_l1_size_bytes"`
	L1Size          string    `json:"derived_l1_size"`
	L2Bytes         int64     `json:"derived_l2_size_bytes"`
	L2Size          string    `json:"derived_l2_size"`
	LMCacheL1GB     int64     `json:"lmcache_l1_gb"`
	LMCacheL2GB     *int64    `json:"lmcache_l2_gb"`   // always null: its file adapter has no limit to set
	Capped          bool      `json:"capacity_capped"` // always false: what does not fit is refused
	Evict           bool      `json:"evict"`
	SkipL2          bool      `json:"planned_skip_l2"`
	LeftOut         int       `json:"samples_left_out"` // as too long
	Duplicates      int       `json:"samples_repeated"` // left out as repeats of a context

	*BenchPrepared // of prompts that vllm bench serve makes
}

// BenchPrepared are the fields of a run of vllm bench serve.
type BenchPrepared struct {
	MaxPromptTokens int     `json:"max_prompt_tokens"`
	NumPrompts      int     `json:"bench_num_prompts"`
	InputLen        int     `json:"bench_input_len"`
	OutputLen       int     `json:"bench_output_len"`
	RequestRate     string  `json:"bench_request_rate"`
	MaxConcurrency  int     `json:"bench_max_concurrency"`
	PrefixLen       int     `json:"bench_random_prefix_len"`
	RangeRatio      float64 `json:"bench_random_range_ratio"`
	Seed            uint64  `json:"bench_seed"`
}

// Size fills in the working set of a workload and what tiers it leads to.
func (p *Prepared) Size(set fixtures.WorkingSet, slotBytes int64) error {
	p.PromptTokens, p.Blocks, p.MaxPromptBlocks = set.PromptTokens, set.Blocks, set.MaxPromptBlocks
	anything := fixtures.Limits{MemoryFree: math.MaxInt64, DiskFree: math.MaxInt64} // what does not fit was refused
	budgets, err := fixtures.Size(set, slotBytes, anything, p.Evict)
	if err != nil {
		return err
	}
	p.L1Bytes, p.L1Size = budgets.L1Bytes, fixtures.HumanSize(budgets.L1Bytes)
	p.L2Bytes, p.L2Size = budgets.L2Bytes, fixtures.HumanSize(budgets.L2Bytes)
	p.LMCacheL1GB, p.SkipL2 = budgets.LMCacheGiB(), budgets.SkipL2
	return nil
}

// WritePrepared writes prepare.json: the workloads by name, and where there is
// one alone its config under the original's key.
func (r *Run) WritePrepared(workloads map[string]Prepared) error {
	prepared := struct {
		Config    *Prepared           `json:"config"`
		Workloads map[string]Prepared `json:"workloads"`
	}{Workloads: workloads}
	if len(workloads) == 1 {
		for _, only := range workloads {
			prepared.Config = &only
		}
	}
	return writeJSON(filepath.Join(r.Dir, "prepare.json"), prepared)
}

// WriteServiceManifest writes the manifest.json of a row, or of one of its
// workloads where services were started for that alone.
func (r *Run) WriteServiceManifest(row, workload string, m ServiceManifest) error {
	return writeJSON(filepath.Join(r.Dir, row, workload, "manifest.json"), m)
}
