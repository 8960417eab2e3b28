package probe

import (
	"fmt"

	"github.com/kvproof/kvproof/harness/row"
)

// Identities checks what must hold between vLLM's own counters over a pass
// without aborted requests, and says in words what does not. Observed to be
// exact on vLLM 0.32.0:
//
//	Σ prompt_tokens_by_source = prompt_tokens = prefix_cache_queries
//	local_cache_hit = prefix_cache_hits
//	external_kv_transfer = external_prefix_cache_hits
//	external_prefix_cache_queries = prompt_tokens − prefix_cache_hits
//	Σ prompt_tokens_cached_by_source = prompt_tokens_cached = local_cache_hit + external_kv_transfer
//
// An identity with a side that is not exported is not checked. Nor are the
// queries of a cache while they stand still: nobody asks a prefix cache that
// is off, or a connector that is not there. vLLM before mid-2026 asked the
// connector for all prompt tokens and fails the fourth one.
func Identities(before, after row.Snapshot) []string {
	delta := func(metric string) term { return term{metric, total(before, after, metric, nil)} }
	from := func(name string) term { return term{"by_source{" + name + "}", source(before, after, name)} }

	prompt := delta("vllm:prompt_tokens")
	asked, askedExternal := delta("vllm:prefix_cache_queries"), delta("vllm:external_prefix_cache_queries")
	found := delta("vllm:prefix_cache_hits")
	local, external := from(sourceLocal), from(sourceExternal)
	cached := delta("vllm:prompt_tokens_cached")

	equations := [][2]term{
		{delta("vllm:prompt_tokens_by_source"), prompt},
		{asked.unlessIdle(), prompt},
		{local, found},
		{external, delta("vllm:external_prefix_cache_hits")},
		{askedExternal.unlessIdle(), prompt.minus(found)},
		{delta("vllm:prompt_tokens_cached_by_source"), cached},
		{cached, local.plus(external)},
	}
	var violations []string
	for _, e := range equations {
		left, right := e[0], e[1]
		switch state := worse(left.state, right.state); {
		case state == row.Restarted:
			return []string{"the counters started anew between the snapshots, so none of vLLM's identities can be checked"}
		case state == row.Impossible:
			violations = append(violations, fmt.Sprintf("%s or %s is below 0", left.name, right.name))
		case state == row.Known && left.value != right.value:
			violations = append(violations, fmt.Sprintf("%s moved by %v, but %s by %v", left.name, left.value, right.name, right.value))
		}
	}
	return violations
}

// A term is one side of an identity, with the words for it.
type term struct {
	name string
	reading
}

func (t term) plus(u term) term { return term{t.name + " + " + u.name, plus(t.reading, u.reading)} }

func (t term) minus(u term) term {
	negative := u.reading
	negative.value = -negative.value
	return term{t.name + " − " + u.name, plus(t.reading, negative)}
}

// unlessIdle turns a counter that stands still into one that is not there.
func (t term) unlessIdle() term {
	if t.state == row.Known && t.value == 0 {
		t.state = row.Absent
	}
	return t
}
