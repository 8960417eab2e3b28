package probe

import "github.com/kvproof/kvproof/harness/row"

// TierShares says where the prompt tokens of a pass came from, as fractions of
// all prompt tokens, so that they add up. A nil pointer is unknown.
type TierShares struct {
	Local      *float64 `json:"share_local"`
	External   *float64 `json:"share_external"` // nil: no connector counters
	Recomputed *float64 `json:"share_recomputed"`
	HitRate    *float64 `json:"hit_rate_total"` // local and external

	// ExternalOfAsked is the external cache's own rate, hits of what it was
	// asked for. Its denominator is another one: never add it to a share.
	ExternalOfAsked *float64 `json:"external_rate_of_asked"`

	Reason Reason `json:"reason,omitempty"` // why the shares are unknown
}

// Shares splits vLLM's prompt tokens into those of the local cache, those of
// the connector and those computed. The whole is the local cache's queries,
// which every prompt token passes first: newer vLLM asks the connector only
// for what the local cache missed, older asked for all, and hits over local
// queries hold for both. Where the local cache is off (its queries stand
// still), the whole is vllm:prompt_tokens.
//
// An endpoint without connector counters has no external tier: its share is
// unknown, not 0 of 0, and the rest is shared out between the other two.
func Shares(before, after row.Snapshot) TierShares {
	whole := total(before, after, "vllm:prefix_cache_queries_total", nil)
	if whole.state == row.Absent || whole.state == row.Known && whole.value == 0 {
		if prompt := total(before, after, "vllm:prompt_tokens_total", nil); prompt.state != row.Absent {
			whole = prompt
		}
	}
	local := total(before, after, "vllm:prefix_cache_hits_total", nil)
	external := total(before, after, "vllm:external_prefix_cache_hits_total", nil)

	shares := TierShares{}
	if rate, _, ok := HitRate(VLLMExternal()(before, after)); ok {
		shares.ExternalOfAsked = &rate
	}
	reused := local
	if external.state != row.Absent {
		reused = plus(local, external)
	}
	hitRate, reason, ok := HitRate(judged(reused, whole))
	if !ok {
		shares.Reason = reason
		return shares
	}
	part := func(tokens float64) *float64 {
		share := tokens / whole.value
		return &share
	}
	shares.HitRate = &hitRate
	shares.Local = part(local.value)
	shares.Recomputed = part(whole.value - reused.value)
	if external.state != row.Absent {
		shares.External = part(external.value)
	}
	return shares
}
