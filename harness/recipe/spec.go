package recipe

import (
	"net/http"
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
	reuse     string                                // reuse_mode of the manifest
	cold      string                                // how the row goes cold, for the manifest
	skip      map[string]bool                       // kv_transfer_params of a request that skips the cache
	law       func(b int) fixtures.Law              // of usage
	backend   func(string, *http.Client) backend    // the cache server at a URL; nil: there is none
	witnesses func(b, tokenBytes int) []row.Witness // beside usage
	tier      func(tier row.Tier) probe.Counting    // the backend's hits of one tier; nil: it has none
	evicted   func(chunk int) probe.Counting        // the tokens that left its L1; nil: it does not tell
	lookups   func(b int) fixtures.Law              // of those
	own       func(b int) fixtures.Law              // of the engine's own cache in front of the row's; nil: it has none
	eviction  fixtures.Capacity                     // when its first tier evicts; sizes are filled in

	// Of rows that are read from files.
	coldHow    string   // how they go cold, where features and backend do not say it
	skipPrompt bool     // requests skip the cache with cache_prompt:false
	idle       []string // gauges of the engine that must be 0 when it is idle; nil: vLLM's
	rounding   float64  // logprobs that are no further apart are equal, in nats
	exact      bool     // equal inputs give equal bits, whatever the batch
}

var streams = []row.Feature{row.Streaming, row.Logprobs, row.StopIDs}

func with(more ...row.Feature) []row.Feature { return append(slices.Clone(streams), more...) }

// specs are the rows that are built.
var specs = map[string]spec{
	"baseline": {
		name: "baseline", features: streams, reuse: "none", cold: "nothing to empty",
		law: func(int) fixtures.Law { return fixtures.NoReuse() },
		witnesses: func(int, int) []row.Witness {
			return []row.Witness{engineSources(fixtures.NoReuse())}
		},
	},
	"engine-cache": {
		name: "engine-cache", features: with(row.Reuse, row.Reset, row.Salts), reuse: "prefix",
		cold: "POST /reset_prefix_cache, proved by a sacrificial prompt",
		law:  fixtures.VLLMLaw,
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
		name: "lmcache", features: with(row.Reuse, row.Reset, row.Salts, row.Tiered, row.Restarts), reuse: "prefix",
		cold:    "POST /reset_prefix_cache?reset_external=true, proved by a sacrificial prompt",
		law:     fixtures.LMCacheLaw,
		backend: func(url string, client *http.Client) backend { return lmcacheServer{url, client} },
		witnesses: func(c, tokenBytes int) []row.Witness {
			wholeChunks := func(prompt int) int { return prompt / c * c }
			return external(fixtures.LMCacheLaw(c), fixtures.LookupLaw(c),
				"lmcache_mp_lookup_hit_tokens", probe.LMCacheLookup(), loadedBytes(tokenBytes), wholeChunks)
		},
		tier: func(tier row.Tier) probe.Counting {
			return probe.Counter("lmcache_mp_lookup_hit_"+string(tier)+"_tokens", "")
		},
		evicted: func(chunk int) probe.Counting {
			return probe.Times(chunk, probe.Counter("lmcache_mp_l1_evicted_chunks", ""))
		},
		lookups: fixtures.LookupLaw,
	},
	"daser-prefix": {
		name: "daser-prefix", features: with(row.Reuse, row.SkipReuse, row.Tiered), reuse: "prefix", skip: daserSkip,
		cold:    "content never sent before (DaseR has no reset), proved by the hits of the cold pass",
		law:     fixtures.LMCacheLaw,
		backend: func(url string, _ *http.Client) backend { return newDaser(url, false) },
		witnesses: func(b, tokenBytes int) []row.Witness {
			return external(fixtures.LMCacheLaw(b), fixtures.LookupLaw(b),
				"daser_cache_matched_tokens", probe.DaseRTokens(), probe.FromFirstUse("daser_up", loadedBytes(tokenBytes)), wholePrompt)
		},
		tier: daserTier, lookups: fixtures.LookupLaw,
		eviction: fixtures.Capacity{Watermark: 1, Ratio: -1}, // full, then one slot for one
	},
	"daser-chunk": {
		name: "daser-chunk", features: with(row.Reuse, row.SkipReuse, row.Documents, row.Lossy), reuse: "chunk", skip: daserSkip,
		cold:    "the documents uploaded before deleted and fresh ones uploaded; the cold pass asks with use_kv_cache:false",
		law:     func(int) fixtures.Law { return fixtures.DocumentLaw() },
		backend: func(url string, _ *http.Client) backend { return newDaser(url, true) },
		witnesses: func(_, tokenBytes int) []row.Witness {
			return external(fixtures.DocumentLaw(), fixtures.DocumentLookupLaw(),
				"daser_cache_matched_tokens", probe.DaseRTokens(), probe.FromFirstUse("daser_up", loadedBytes(tokenBytes)), wholePrompt)
		},
		tier: daserTier, lookups: func(int) fixtures.Law { return fixtures.DocumentLookupLaw() },
	},
}

// daserTier reads a counter of the miniature DaseR's own: DaseR does not tell
// the hit tokens of its tiers apart.
func daserTier(tier row.Tier) probe.Counting {
	return probe.FromFirstUse("daser_up", probe.Labelled("kvproof_store_hit_tokens_total", map[string]string{"tier": string(tier)}))
}

// tierWitnesses are the hits and the bytes of the two tiers, and what left the
// first, each under the oracle's model of what the store holds where.
func (s spec) tierWitnesses(b, tokenBytes int) []row.Witness {
	witness := func(name string, tier row.Tier, source string, count probe.Counting) row.Witness {
		return row.Witness{
			Name: name, Source: source, Probe: backendProbe, Required: true, Tier: tier, Law: s.lookups(b), Count: count,
		}
	}
	var witnesses []row.Witness
	for _, tier := range []row.Tier{row.L1, row.L2} {
		loaded := probe.FromFirstUse("daser_up", probe.Labelled("kvproof_store_loaded_bytes_total", map[string]string{"tier": string(tier)}))
		witnesses = append(witnesses,
			witness("backend-"+string(tier), tier, "hit tokens of "+string(tier), s.tier(tier)),
			witness("bytes-"+string(tier), tier, "bytes loaded from "+string(tier), probe.Per(tokenBytes, loaded)))
	}
	if s.evicted != nil {
		witnesses = append(witnesses, witness("backend-evicted", row.Evicted, "chunks evicted from l1", s.evicted(b)))
	}
	return witnesses
}

// daserSkip keeps a request from reading and from writing DaseR's cache.
var daserSkip = map[string]bool{"daser_skip_load": true, "daser_skip_save": true}

func loadedBytes(tokenBytes int) probe.Counting {
	return probe.BytesMoved("kvproof_store_loaded_bytes", tokenBytes)
}

// external are the witnesses of a row with a cache behind the engine: the
// engine's two accounts, what the cache found, and what it moved.
func external(hits, lookups fixtures.Law, source string, count, bytes probe.Counting, asked func(int) int) []row.Witness {
	return []row.Witness{
		{
			Name: "engine", Source: "vllm:external_prefix_cache_hits", Probe: engineProbe, Required: true,
			Law: hits, Count: probe.VLLMExternal(), Asked: wholePrompt,
		},
		engineSources(hits),
		{
			Name: "backend", Source: source, Probe: backendProbe, Required: true,
			Law: lookups, Count: count, Asked: asked,
		},
		{
			Name: "bytes", Source: "kvproof_store_loaded_bytes", Probe: backendProbe, Required: true,
			Law: lookups, Count: bytes,
		},
	}
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
