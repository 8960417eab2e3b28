package lmcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler is the HTTP side: health, version, status, configuration, metrics,
// clear and checksums, under the routes of the release.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	routes := s.dialect.Routes
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.ctx.Err() != nil {
			writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unhealthy"})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.config.Version+"-kvproof")
	})
	mux.HandleFunc("GET /lmc_version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.config.Version)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.status()) })
	mux.HandleFunc("GET "+routes.Config, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.configuration()) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(s.metrics.Load().registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	mux.HandleFunc("POST "+routes.Clear, s.clearOverHTTP)
	if routes.Query {
		mux.HandleFunc("GET "+routes.Checksums, s.oldChecksums)
	} else {
		mux.HandleFunc("POST "+routes.Checksums, s.checksums)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusNotFound, "Not Found") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Dead() {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		mux.ServeHTTP(w, r)
	})
}

// clearOverHTTP empties L1; the body may say which tier, and whether to ignore
// locks.
func (s *Server) clearOverHTTP(w http.ResponseWriter, r *http.Request) {
	body := struct {
		Tier  string `json:"tier"`
		Force bool   `json:"force"`
	}{Tier: "l1"}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprintf("reading the body: %v", err))
		return
	}
	if body.Tier != "l1" {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("tier '%s' not supported; only 'l1'", body.Tier))
		return
	}
	if _, err := s.Empty(body.Force); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	if s.dialect.Routes.Query {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "cleared": map[string]string{"tier": "l1"}})
}

// configuration has the fields of upstream's that a client looks at.
func (s *Server) configuration() map[string]any {
	c := s.config
	host, port, _ := strings.Cut(s.listener.Addr().String(), ":")
	name := strings.TrimPrefix(s.objects.memory.name, poolPrefix)
	memory := map[string]any{
		"size_in_bytes": c.L1Bytes, "use_lazy": false, "init_size_in_bytes": c.L1Bytes, "align_bytes": c.Align,
		"shm_name": name, "use_hugepages": false,
	}
	eviction := map[string]any{"eviction_policy": "LRU", "trigger_watermark": c.Watermark, "eviction_ratio": c.Ratio}
	adapters := []any{}
	if c.L2Dir != "" {
		adapters = append(adapters, map[string]any{"type": "fs", "base_path": c.L2Dir})
	}
	return map[string]any{
		"mp": map[string]any{
			"transport": "zmq", "host": host, "port": json.Number(port), "chunk_size": c.Chunk,
			"max_workers": 1, "max_gpu_workers": c.TransferWorkers, "max_cpu_workers": c.Workers,
			"hash_algorithm": "blake3", "engine_type": "default", "separate_object_groups": c.Separate,
			"supported_transfer_mode": c.Transfer, "shm_name": name, "null_block_id": c.NullBlock,
			"worker_reap_timeout_seconds": 0, "session_ttl_seconds": 600,
		},
		"storage_manager": map[string]any{
			"l1_manager_config": map[string]any{
				"memory_config": memory, "write_ttl_seconds": writeTTL.Seconds(), "read_ttl_seconds": c.LockTTL.Seconds(),
				"tag": l1Tag, "eviction": eviction,
			},
			"eviction_config": eviction, "l2_adapter_config": map[string]any{"adapters": adapters},
			"store_policy": "default", "prefetch_policy": "default",
		},
	}
}

// refuse answers as upstream's framework does.
func refuse(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, map[string]string{"detail": detail})
}

// writeJSON has nobody to report a failed write to but the client that left.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
