package lmcache

import (
	"fmt"
	"maps"
	"slices"
)

// status has the fields of upstream's /status, as far as what they tell of
// exists here. The types of nested values are those of LMCache 0.5.6.
type status struct {
	Healthy        bool           `json:"is_healthy"`
	EngineType     string         `json:"engine_type"`
	ChunkSize      int            `json:"chunk_size"`
	HashAlgorithm  string         `json:"hash_algorithm"`
	ActiveSessions int            `json:"active_sessions"`
	StorageManager storageManager `json:"storage_manager"`
	ActivePrefetch int            `json:"active_prefetch_jobs"`

	Paged        []int                 `json:"registered_gpu_ids"`
	PagedMeta    map[string]pagedMeta  `json:"cache_context_meta"`
	Engines      []int                 `json:"registered_non_cuda_instance_ids"`
	EnginesMeta  map[string]engineMeta `json:"non_cuda_context_meta"`
	PlantedFault []Fault               `json:"kvproof_faults,omitempty"`
}

type pagedMeta struct {
	Model     string `json:"model_name"`
	WorldSize int    `json:"world_size"`
	Layout    struct {
		Layers   int           `json:"num_layers"`
		Blocks   int           `json:"num_blocks"`
		PerToken int           `json:"cache_size_per_token"`
		Groups   []kernelGroup `json:"kernel_groups"`
	} `json:"kv_cache_layout"`
}

type kernelGroup struct {
	Kernel int    `json:"kernel_group_idx"`
	Engine int    `json:"engine_group_idx"`
	Layers int    `json:"num_layers"`
	Tokens int    `json:"tokens_per_block"`
	Slots  int    `json:"slots_per_block"`
	DType  string `json:"dtype"`
	MLA    bool   `json:"is_mla"`
}

type engineMeta struct {
	Model     string `json:"model_name"`
	WorldSize int    `json:"world_size"`
	BlockSize int    `json:"block_size"`
	MLA       bool   `json:"use_mla"`
}

type storageManager struct {
	Healthy   bool                       `json:"is_healthy"`
	L1s       map[string]l1Manager       `json:"l1_managers"`
	L1        l1Manager                  `json:"l1_manager"`
	Stores    map[string]storeController `json:"store_controllers"`
	Store     storeController            `json:"store_controller"`
	Eviction  evictionController         `json:"l1_eviction_controller"`
	Prefetch  prefetchController         `json:"prefetch_controller"`
	Adapters  []string                   `json:"l2_adapters"`
	NAdapters int                        `json:"num_l2_adapters"`
	L1Usage   [2]int64                   `json:"l1_usage"` // bytes used, bytes there are
}

type l1Manager struct {
	Healthy     bool    `json:"is_healthy"`
	Objects     int     `json:"total_object_count"`
	WriteLocked int     `json:"write_locked_count"`
	ReadLocked  int     `json:"read_locked_count"`
	Temporary   int     `json:"temporary_count"`
	Used        int64   `json:"memory_used_bytes"`
	Total       int64   `json:"memory_total_bytes"`
	UsageRatio  float64 `json:"memory_usage_ratio"`
	WriteTTL    float64 `json:"write_ttl_seconds"`
	ReadTTL     float64 `json:"read_ttl_seconds"`
}

type storeController struct {
	Healthy  bool `json:"is_healthy"`
	Thread   bool `json:"thread_alive"`
	Pending  int  `json:"pending_keys_count"`
	InFlight int  `json:"in_flight_task_count"`
	Adapters int  `json:"num_l2_adapters"`
}

type evictionController struct {
	Healthy   bool    `json:"is_healthy"`
	Thread    bool    `json:"thread_alive"`
	Policy    string  `json:"eviction_policy"`
	Watermark float64 `json:"trigger_watermark"`
	Ratio     float64 `json:"eviction_ratio"`
}

type prefetchController struct {
	Healthy    bool `json:"is_healthy"`
	Thread     bool `json:"thread_alive"`
	Submission int  `json:"submission_queue_size"`
	Pending    int  `json:"pending_queue_size"`
	InFlight   int  `json:"in_flight_request_count"`
	Lookup     int  `json:"lookup_phase_count"`
	Load       int  `json:"load_phase_count"`
	Completed  int  `json:"completed_results_count"`
}

// memory is the bytes in use.
func (o objectStats) memory() int64 { return o.used + o.reserved }

// status reads the queue of stores before what it leads to, so that what is on
// its way is seen in at least one of the two. Lookups are done inside their
// call, so the prefetch controller is always at rest.
func (s *Server) status() status {
	pending, inFlight := s.visible.state()
	o := s.objects.stats()
	alive := s.ctx.Err() == nil
	l1 := l1Manager{
		Healthy: alive, Objects: o.objects, WriteLocked: o.writing, ReadLocked: o.locked, Temporary: o.temporary,
		Used: o.memory(), Total: s.config.L1Bytes, UsageRatio: float64(o.memory()) / float64(s.config.L1Bytes),
		WriteTTL: writeTTL.Seconds(), ReadTTL: s.config.LockTTL.Seconds(),
	}
	adapters := []string{}
	if s.config.L2Dir != "" {
		adapters = append(adapters, "fs")
	}
	store := storeController{Healthy: alive, Thread: alive, Pending: pending + o.pending, InFlight: inFlight + o.inFlight, Adapters: len(adapters)}
	st := status{
		Healthy: alive, EngineType: "MPCacheServer", ChunkSize: s.config.Chunk, HashAlgorithm: "blake3",
		PlantedFault: s.Planted(),
		StorageManager: storageManager{
			Healthy: alive,
			L1s:     map[string]l1Manager{l1Tag: l1}, L1: l1,
			Stores: map[string]storeController{l1Tag: store}, Store: store,
			Eviction: evictionController{Healthy: alive, Thread: alive, Policy: "LRU", Watermark: s.config.Watermark, Ratio: s.config.Ratio},
			Prefetch: prefetchController{Healthy: alive, Thread: alive},
			Adapters: adapters, NAdapters: len(adapters),
			L1Usage: [2]int64{o.memory(), s.config.L1Bytes},
		},
		PagedMeta: map[string]pagedMeta{}, EnginesMeta: map[string]engineMeta{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.ActiveSessions, st.ActivePrefetch = len(s.sessions), len(s.lookups)
	st.Paged, st.Engines = slices.AppendSeq([]int{}, maps.Keys(s.paged)), slices.AppendSeq([]int{}, maps.Keys(s.engines))
	slices.Sort(st.Paged)
	slices.Sort(st.Engines)
	for id, p := range s.paged {
		meta := pagedMeta{Model: p.model, WorldSize: p.world}
		meta.Layout.Layers = len(p.layers)
		for i := range p.groups {
			g := &p.groups[i]
			first := g.layers[0]
			meta.Layout.Blocks = g.blocks()
			meta.Layout.PerToken += g.chunkBytes(1)
			meta.Layout.Groups = append(meta.Layout.Groups, kernelGroup{i, i, len(g.layers), g.tokens, first.slots, first.dtype, first.planes == 1})
		}
		st.PagedMeta[fmt.Sprint(id)] = meta
	}
	for id, e := range s.engines {
		c := e.context
		st.EnginesMeta[fmt.Sprint(id)] = engineMeta{c.Model, c.WorldSize, c.BlockSize, c.MLA}
	}
	return st
}
