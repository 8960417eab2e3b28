package engine

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// pythonBool is how Python writes a truth value into a label.
func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// cacheConfig is what cache_config_info shows: the effective configuration as
// labels. Those that have no meaning here keep the values of a plain server.
func cacheConfig(c Config) prometheus.Labels {
	bytes := c.NumBlocks * c.BlockSize * c.Model.TokenBytes()
	tokens := c.NumBlocks * c.BlockSize
	size := strconv.Itoa(c.BlockSize)
	return prometheus.Labels{
		"engine":                         "0",
		"block_size":                     size,
		"effective_attention_block_size": size,
		"user_specified_block_size":      "True",
		"_block_size_resolved":           "True",
		"num_gpu_blocks":                 strconv.Itoa(c.NumBlocks),
		"kv_cache_size_tokens":           strconv.Itoa(tokens),
		"kv_cache_memory_bytes":          strconv.Itoa(bytes),
		"kv_cache_max_concurrency":       strconv.FormatFloat(float64(tokens)/float64(c.Model.Config().Context), 'f', -1, 64),
		"enable_prefix_caching":          pythonBool(c.PrefixCaching),
		"prefix_caching_hash_algo":       "sha256",
		"cache_dtype":                    "float32",

		"cache_hit_alignment_tokens": "None", "enable_mamba_shared_prefix_checkpoint": "False",
		"gpu_memory_utilization": "None", "hash_block_size": "None", "is_attention_free": "False",
		"kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": "None", "kv_offloading_backend": "None",
		"kv_offloading_size": "None", "kv_sharing_fast_prefill": "False", "mamba_block_size": "None",
		"mamba_cache_dtype": "auto", "mamba_cache_mode": "none", "mamba_page_size_padded": "None",
		"mamba_ssm_cache_dtype": "float32", "num_cpu_blocks": "None", "num_gpu_blocks_override": "None",
		"prefix_cache_retention_interval": "0", "prefix_match_unit": "None", "replayssm_buffer_len": "16",
		"skip_page_size_padded": "None", "sliding_window": "None", "swa_bounded_replay": "True",
		"use_kda_recoverssm": "False", "use_replayssm": "False",
	}
}
