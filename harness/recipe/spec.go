package recipe

import (
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// A spec is what makes a row that row, on any stack. b is the block size of
// the engine and the chunk size of the cache behind it.
type spec struct {
	name      string
	features  []row.Feature
	reuse     string // reuse_mode of the manifest
	law       func(b int) fixtures.Law
	deferred  bool // stores are readable some time after the request ended
	external  bool // the cache is behind the engine: reset and settle reach it too
	witnesses func(b, tokenBytes int) []row.Witness
}

var streams = []row.Feature{row.Streaming, row.Logprobs}

// specs are the rows that are built.
var specs = map[string]spec{
	"baseline": {
		name: "baseline", features: streams, reuse: "none",
		law: func(int) fixtures.Law { return fixtures.NoReuse() },
		witnesses: func(b, _ int) []row.Witness {
			return []row.Witness{engineSources(fixtures.NoReuse())}
		},
	},
	"engine-cache": {
		name: "engine-cache", features: append(slices.Clone(streams), row.Reuse, row.Reset), reuse: "prefix",
		law: fixtures.VLLMLaw,
		witnesses: func(b, _ int) []row.Witness {
			return []row.Witness{
				{
					Name: "engine", Source: "vllm:prefix_cache_hits", Probe: engineProbe, Required: true,
					Law: fixtures.VLLMLaw(b), Count: probe.VLLMLocal(), Asked: wholePrompt,
				},
				engineSources(fixtures.VLLMLaw(b)),
			}
		},
	},
	"lmcache": {
		name: "lmcache", features: append(slices.Clone(streams), row.Reuse, row.Reset), reuse: "prefix",
		law: fixtures.LMCacheLaw, deferred: true, external: true,
		witnesses: func(c, tokenBytes int) []row.Witness {
			return []row.Witness{
				{
					Name: "engine", Source: "vllm:external_prefix_cache_hits", Probe: engineProbe, Required: true,
					Law: fixtures.LMCacheLaw(c), Count: probe.VLLMExternal(), Asked: wholePrompt,
				},
				engineSources(fixtures.LMCacheLaw(c)),
				{
					Name: "backend", Source: "lmcache_mp_lookup_hit_tokens", Probe: backendProbe, Required: true,
					Law: fixtures.LookupLaw(c), Count: probe.LMCacheLookup(),
					Asked: func(prompt int) int { return prompt / c * c },
				},
				{
					Name: "bytes", Source: "kvproof_store_loaded_bytes", Probe: backendProbe, Required: true,
					Law: fixtures.LookupLaw(c), Count: probe.BytesMoved("kvproof_store_loaded_bytes", tokenBytes),
				},
			}
		},
	},
}

// The probes of a row.
const (
	engineProbe  = "engine"
	backendProbe = "backend"
)

func wholePrompt(prompt int) int { return prompt }

// engineSources is the engine's account of where prompt tokens came from,
// apart from its hit counters.
func engineSources(law fixtures.Law) row.Witness {
	return row.Witness{
		Name: "sources", Source: "vllm:prompt_tokens_cached", Probe: engineProbe, Required: true,
		Law: law, Count: probe.VLLMCached(), Asked: wholePrompt,
	}
}
