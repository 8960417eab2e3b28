package probe

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// A Level says what the counters of a ratio count.
type Level string

// The levels.
const (
	Tokens   Level = "tokens"
	Requests Level = "requests"
	Unproven Level = "unproven" // tokens in some releases, requests in others
)

// A Ratio is one candidate for a hit rate, with the raw change of both its
// counters. Nil pointers are unknown. Rate is nil too where the denominator is
// 0, where the server restarted, and where the numbers cannot be.
type Ratio struct {
	Hits        *float64 `json:"numerator"`
	Queries     *float64 `json:"denominator"`
	Rate        *float64 `json:"ratio"`
	HitsName    string   `json:"numerator_name"`
	QueriesName string   `json:"denominator_name"`
	Level       Level    `json:"level"`
	Probe       string   `json:"probe,omitempty"`  // whose page has the counters
	Reason      Reason   `json:"reason,omitempty"` // why Rate is nil
	Chosen      bool     `json:"chosen,omitempty"` // it is the backend's hit rate
}

// Ratios is the raw record of a pass: every candidate, and the one that
// counts. As JSON it is the map of the candidates by key.
type Ratios struct {
	Candidates                map[string]Ratio
	BackendServerCacheHitRate *float64 // token level, from 0 to 1; nil: unknown
	Source                    string   // key of the candidate that it is
}

// MarshalJSON writes the candidates by key.
func (r Ratios) MarshalJSON() ([]byte, error) { return json.Marshal(r.Candidates) }

// pair names the two counters of a ratio.
type pair struct {
	hits, queries string
	hitsLabels    map[string]string
	level         Level
}

// candidates are the hit rates that DaseR's benchmark collects, by its keys,
// each with its pairs in the order in which they are tried.
var candidates = map[string][]pair{
	"vllm_external_prefix": {{
		hits: "vllm:external_prefix_cache_hits_total", queries: "vllm:external_prefix_cache_queries_total", level: Tokens,
	}},
	"lmcache_prometheus_lookup": {
		{hits: "lmcache_mp_lookup_hit_tokens_total", queries: "lmcache_mp_lookup_requested_tokens_total", level: Tokens},
		{hits: "lmcache_mp_lookup_hit_total", queries: "lmcache_mp_lookup_requested_total", level: Unproven},
		{hits: "lmcache_num_hit_tokens_total", queries: "lmcache_num_requested_tokens_total", level: Tokens},
	},
	"lmcache_prometheus_retrieve": {{
		hits: "lmcache_interval_hit_tokens_total", queries: "lmcache_interval_requested_tokens_total", level: Tokens,
	}},
	"daser_prometheus_tokens": {{
		hits: "daser_cache_matched_tokens_total", queries: "daser_cache_requested_tokens_total", level: Tokens,
	}},
	"daser_external_prefix": {{
		hits: "daser_external_prefix_cache_hits_total", queries: "daser_external_prefix_cache_queries_total", level: Tokens,
	}},
	"daser_prometheus_requests": {{
		hits: "daser_cache_lookup_total", queries: "daser_cache_lookup_total",
		hitsLabels: map[string]string{"result": "hit"}, level: Requests,
	}},
}

// statusKey is the candidate that is read from LMCache's status page.
const statusKey = "lmcache_status_prefetch"

// precedence orders the candidates that can be the backend's hit rate. Values
// per request and the engine's view of its connector are diagnostics.
var precedence = []string{"daser_prometheus_tokens", "lmcache_prometheus_lookup", "lmcache_prometheus_retrieve", statusKey}

// HitRatios collects the candidates from the snapshots around a pass, keyed by
// probe. The backend's hit rate is the first in DaseR's order that has a rate
// and is proved to count tokens; a pair that counts requests in some releases
// stays in the record only. With no such candidate the rate is unknown.
func HitRatios(before, after map[string]row.Snapshot) Ratios {
	return HitRatiosWithStatus(before, after, nil, nil)
}

// HitRatiosWithStatus is HitRatios with LMCache's status before and after the
// pass, as decoded from JSON, for releases without token counters. Upstream's
// 0.5.6 has no hit counters there.
func HitRatiosWithStatus(before, after map[string]row.Snapshot, statusBefore, statusAfter any) Ratios {
	ratios := Ratios{Candidates: make(map[string]Ratio, len(candidates)+1)}
	for key, pairs := range candidates {
		ratios.Candidates[key] = firstAsked(before, after, pairs)
	}
	ratios.Candidates[statusKey] = statusRatio(statusBefore, statusAfter)
	for _, key := range precedence {
		chosen := ratios.Candidates[key]
		if chosen.Rate == nil || chosen.Level != Tokens {
			continue
		}
		chosen.Chosen = true
		ratios.Candidates[key] = chosen
		ratios.BackendServerCacheHitRate, ratios.Source = chosen.Rate, key
		break
	}
	return ratios
}

// firstAsked is the first pair whose denominator moved; with none, the first
// that is exported, else the first, which then says what is missing.
func firstAsked(before, after map[string]row.Snapshot, pairs []pair) Ratio {
	var fallback *Ratio
	for _, p := range pairs {
		r := ratioOf(before, after, p)
		if r.Queries != nil && *r.Queries > 0 {
			return r
		}
		if fallback == nil || fallback.Reason == NotExported && r.Reason != NotExported {
			fallback = &r
		}
	}
	return *fallback
}

// ratioOf reads both counters from the one page that has the denominator: the
// first by name, for adding up pages that export the same counter would count
// it twice.
func ratioOf(before, after map[string]row.Snapshot, p pair) Ratio {
	r := Ratio{HitsName: p.hits, QueriesName: p.queries, Level: p.level}
	hits, queries := reading{state: row.Absent}, reading{state: row.Absent}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !exports(after[name], p.queries) && !exports(before[name], p.queries) {
			continue
		}
		r.Probe = name
		queries = total(before[name], after[name], p.queries, nil)
		hits = total(before[name], after[name], p.hits, p.hitsLabels)
		if p.hitsLabels != nil {
			hits = labelled(before[name], after[name], p.hits, p.hitsLabels)
		}
		break
	}
	r.set(hits, queries)
	return r
}

func (r *Ratio) set(hits, queries reading) {
	if hits.state == row.Known {
		r.Hits = &hits.value
	}
	if queries.state == row.Known {
		r.Queries = &queries.value
	}
	rate, reason, ok := HitRate(judged(hits, queries))
	if !ok {
		r.Reason = reason
		return
	}
	r.Rate = &rate
}
