package store

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// Handler answers GET /healthcheck, /status and /metrics as LMCache 0.5.6
// does on its HTTP port. /status has the fields that tell whether the store is
// at rest, its chunk size and its memory; those of parts that do not exist
// here (peers, adapters that come and go) are missing.
func (s *Store) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.state().closed {
			writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unhealthy"})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.status())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return mux
}

// writeJSON has nobody to report a failed write to but the client that left.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// state is what status and gauges show of a store at one moment.
type state struct {
	tier.Stats
	pending, inFlight, dropped int
	closed                     bool
}

func (s *Store) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := state{Stats: s.objects.Stats(), inFlight: s.inFlight, dropped: s.dropped, closed: s.closed}
	for _, j := range s.queue {
		for _, values := range j.values {
			if values != nil {
				st.pending++
			}
		}
	}
	return st
}

type status struct {
	Healthy        bool           `json:"is_healthy"`
	EngineType     string         `json:"engine_type"`
	ChunkSize      int            `json:"chunk_size"`
	HashAlgorithm  string         `json:"hash_algorithm"`
	StorageManager storageManager `json:"storage_manager"`
	ActivePrefetch int            `json:"active_prefetch_jobs"`
}

type storageManager struct {
	Healthy  bool               `json:"is_healthy"`
	L1       l1Manager          `json:"l1_manager"`
	Store    storeController    `json:"store_controller"`
	Eviction evictionController `json:"l1_eviction_controller"`
	Prefetch prefetchController `json:"prefetch_controller"`
	Adapters int                `json:"num_l2_adapters"`
	L1Usage  [2]int64           `json:"l1_usage"` // bytes used, bytes there are
}

type l1Manager struct {
	Healthy     bool    `json:"is_healthy"`
	Objects     int     `json:"total_object_count"`
	Used        int64   `json:"memory_used_bytes"`
	Total       int64   `json:"memory_total_bytes"`
	UsageRatio  float64 `json:"memory_usage_ratio"`
	WriteLocked int     `json:"write_locked_count"`
	ReadLocked  int     `json:"read_locked_count"`
}

type storeController struct {
	Healthy  bool `json:"is_healthy"`
	Thread   bool `json:"thread_alive"`
	Pending  int  `json:"pending_keys_count"`
	InFlight int  `json:"in_flight_task_count"`
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
	Submission int  `json:"submission_queue_size"`
	Pending    int  `json:"pending_queue_size"`
	InFlight   int  `json:"in_flight_request_count"`
	Lookup     int  `json:"lookup_phase_count"`
	Load       int  `json:"load_phase_count"`
}

// status fills the fields that LMCache's own /status has for them. Loads are
// done inside the call, so the prefetch controller is always at rest.
func (s *Store) status() status {
	st := s.state()
	alive := !st.closed
	adapters := 0
	if s.cfg.L2Dir != "" {
		adapters = 1
	}
	watermark, ratio := s.objects.Eviction()
	return status{
		Healthy: alive, EngineType: "kvproof-mini", ChunkSize: s.cfg.Chunk, HashAlgorithm: "sha256",
		StorageManager: storageManager{
			Healthy: alive,
			L1: l1Manager{
				Healthy: alive, Objects: st.L1.Objects, Used: st.L1.Bytes, Total: s.cfg.Capacity,
				UsageRatio: float64(st.L1.Bytes) / float64(s.cfg.Capacity),
			},
			Store:    storeController{Healthy: alive, Thread: alive, Pending: st.pending, InFlight: st.inFlight},
			Eviction: evictionController{Healthy: alive, Thread: alive, Policy: "LRU", Watermark: watermark, Ratio: ratio},
			Prefetch: prefetchController{Healthy: alive},
			Adapters: adapters,
			L1Usage:  [2]int64{st.L1.Bytes, s.cfg.Capacity},
		},
	}
}
