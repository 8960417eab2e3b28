package probe

import "github.com/kvproof/kvproof/harness/row"

// A Counting turns the snapshots around a pass into hit tokens: the Count of a
// row.Witness.
type Counting = func(before, after row.Snapshot) row.Count

// Counter counts hits and queries by two counters of the same unit. With an
// empty queries name the count has no queries. The names work with and without
// _total.
func Counter(hits, queries string) Counting {
	return func(before, after row.Snapshot) row.Count {
		asked := reading{state: row.Absent}
		if queries != "" {
			asked = total(before, after, queries, nil)
		}
		return judged(total(before, after, hits, nil), asked)
	}
}

// VLLMLocal counts the tokens that vLLM's own prefix cache was asked for and
// found. Tokens since 2025; before that, and under other names, blocks.
func VLLMLocal() Counting {
	return Counter("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
}

// VLLMExternal counts the tokens that vLLM asked its KV connector for and that
// the connector said it has: what the local cache left over. The counters are
// exported at 0 without any connector too (observed on vLLM 0.32.0), so
// presence proves nothing.
func VLLMExternal() Counting {
	return Counter("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total")
}

// The values of the source label of vllm:prompt_tokens_by_source_total,
// observed on vLLM 0.32.0.
const (
	sourceComputed = "local_compute"
	sourceLocal    = "local_cache_hit"
	sourceExternal = "external_kv_transfer"
)

const vllmBySource = "vllm:prompt_tokens_by_source_total"

// VLLMCached counts prompt tokens that vLLM did not compute, local and
// external ones, out of all prompt tokens. It is the count to trust most: the
// prefix cache counters were counted again at each scheduling retry in some
// versions, these are not. Over a pass it equals the sum of cached_tokens in
// usage. Where the counters by source are absent it reads
// vllm:prompt_tokens_cached and vllm:prompt_tokens.
func VLLMCached() Counting {
	totals := Counter("vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total")
	return func(before, after row.Snapshot) row.Count {
		queries := total(before, after, vllmBySource, nil)
		if queries.state == row.Absent {
			return totals(before, after)
		}
		hits := plus(source(before, after, sourceLocal), source(before, after, sourceExternal))
		return judged(hits, queries)
	}
}

// Labelled counts the hits of one label set of a counter, which appears with
// its first use beside others of its name.
func Labelled(hits string, match map[string]string) Counting {
	return func(before, after row.Snapshot) row.Count {
		r := labelled(before, after, hits, match)
		return row.Count{Hits: r.value, State: r.state}
	}
}

// Of counts hits by a counter, of which match (nil: all) picks the label sets,
// out of queries, which are the sum of other counters; without any there are no
// queries. The names work with and without _total.
func Of(hits string, match map[string]string, queries []string) Counting {
	return func(before, after row.Snapshot) row.Count {
		found := total(before, after, hits, nil)
		if len(match) > 0 {
			found = labelled(before, after, hits, match)
		}
		asked := reading{state: row.Absent}
		for i, name := range queries {
			next := total(before, after, name, nil)
			if i > 0 {
				next = plus(asked, next)
			}
			asked = next
		}
		return judged(found, asked)
	}
}

// Times is a counting of units of so many tokens each, as tokens.
func Times(tokens int, count Counting) Counting { return scaled(float64(tokens), count) }

// Per is a counting of bytes of which so many make a token, as tokens. If that
// number is not positive, the size of a token is unknown and so is the count.
func Per(bytes int, count Counting) Counting {
	if bytes <= 0 {
		return func(_, _ row.Snapshot) row.Count { return row.Count{State: row.Absent} }
	}
	return scaled(1/float64(bytes), count)
}

func scaled(factor float64, count Counting) Counting {
	return func(before, after row.Snapshot) row.Count {
		c := count(before, after)
		c.Hits, c.Queries = c.Hits*factor, c.Queries*factor
		return c
	}
}

// LMCacheLookup counts the tokens that LMCache's multiprocess server looked up
// and found. It looks up whole chunks only and does not see vLLM's local hits
// (observed on LMCache 0.5.6).
func LMCacheLookup() Counting {
	return Counter("lmcache_mp_lookup_hit_tokens_total", "lmcache_mp_lookup_requested_tokens_total")
}

// DaseRTokens counts the tokens that DaseR's core was asked for and matched.
// Every lookup counts, /infer's own trace of the cache too (read in DaseR's
// sources).
func DaseRTokens() Counting {
	return FromFirstUse("daser_up", Counter("daser_cache_matched_tokens_total", "daser_cache_requested_tokens_total"))
}

// FromFirstUse is a counting whose counters a server exports only once they
// have counted something, as DaseR does. While the gauge up says that it is
// that server which answers, what it does not export yet is 0; without the
// gauge it stays unknown.
func FromFirstUse(up string, count Counting) Counting {
	return func(before, after row.Snapshot) row.Count {
		c := count(before, after)
		if c.State != row.Absent {
			return c
		}
		for _, s := range []row.Snapshot{before, after} {
			if v, ok := Sum(s, up, nil); !ok || v < 1 {
				return c
			}
		}
		return row.Count{State: row.Known}
	}
}

// BytesMoved counts the tokens whose KV was moved, from a counter of bytes.
// bytesPerToken is the size of one token's KV over all layers; if it is not
// positive, the size is unknown and so is the count. A transfer that is no
// whole number of tokens shows as a fraction.
func BytesMoved(metric string, bytesPerToken int) Counting {
	return Per(bytesPerToken, Counter(metric, ""))
}

// LlamaCpp counts cached prompt tokens of llama.cpp's server, whose
// prompt_tokens_total leaves the cached ones out: queries are the sum of both.
func LlamaCpp() Counting {
	return func(before, after row.Snapshot) row.Count {
		cached := total(before, after, "llamacpp:prompt_tokens_cached_total", nil)
		computed := total(before, after, "llamacpp:prompt_tokens_total", nil)
		return judged(cached, plus(cached, computed))
	}
}

// A Reason says why there is no hit rate.
type Reason string

// The reasons.
const (
	NoQueries    Reason = "no_queries"    // 0/0: nobody asked
	NotExported  Reason = "absent"        // a counter is missing
	CounterReset Reason = "counter_reset" // the server restarted in between
	Unbelievable Reason = "impossible"    // more hits than queries, or below 0
)

// HitRate is hits over queries, from 0 to 1. Where there is none, ok is false
// and reason says why; the rate is never clamped.
func HitRate(c row.Count) (rate float64, reason Reason, ok bool) {
	switch {
	case c.State == row.Restarted:
		return 0, CounterReset, false
	case c.State == row.Impossible:
		return 0, Unbelievable, false
	case c.State != row.Known || !c.HasQueries:
		return 0, NotExported, false
	case c.Hits < 0 || c.Hits > c.Queries:
		return 0, Unbelievable, false
	case c.Queries == 0:
		return 0, NoQueries, false
	}
	return c.Hits / c.Queries, "", true
}

// A reading is a delta with what it is worth.
type reading struct {
	value float64
	state row.State
}

func total(before, after row.Snapshot, metric string, match map[string]string) reading {
	value, state := Delta(before, after, metric, match)
	return reading{value, state}
}

// labelled is the delta of one label set of a counter whose label sets appear
// with their first use: where others exist and this one does not, it is 0.
func labelled(before, after row.Snapshot, metric string, match map[string]string) reading {
	r := total(before, after, metric, match)
	if r.state == row.Absent && exports(after, metric) {
		return reading{0, row.Known}
	}
	return r
}

func source(before, after row.Snapshot, name string) reading {
	return labelled(before, after, vllmBySource, map[string]string{"source": name})
}

// plus adds two readings; the sum is worth no more than its worse part.
func plus(a, b reading) reading {
	if state := worse(a.state, b.state); state != row.Known {
		return reading{state: state}
	}
	return reading{a.value + b.value, row.Known}
}

// worse orders states by what they say about the whole pass: a restart
// explains everything else, an impossible number outweighs a missing one.
func worse(a, b row.State) row.State {
	for _, state := range []row.State{row.Restarted, row.Impossible, row.Absent} {
		if a == state || b == state {
			return state
		}
	}
	return row.Known
}

// judged makes a count of two readings and refuses numbers that cannot be. Hits
// without their queries are known hits; what is missing then is the rate.
func judged(hits, queries reading) row.Count {
	c := row.Count{Hits: hits.value, State: hits.state}
	if queries.state != row.Absent {
		c.Queries, c.HasQueries = queries.value, queries.state == row.Known
		c.State = worse(hits.state, queries.state)
	}
	if c.State == row.Known && (c.Hits < 0 || c.HasQueries && c.Hits > c.Queries) {
		c.State = row.Impossible
	}
	return c
}
