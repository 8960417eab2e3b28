package mini

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// debug lets somebody outside the suite damage a store:
//
//	GET  /debug/chunks                   lists what is stored
//	POST /debug/flip?chunk=N&offset=M    inverts byte M of chunk N
//
// Without unsafe both are refused.
func debug(s *lmcache.Server, unsafe bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/chunks", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.Chunks())
	})
	mux.HandleFunc("POST /debug/flip", func(w http.ResponseWriter, r *http.Request) {
		chunk, err := number(r, "chunk")
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		offset, err := number(r, "offset")
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		flipped, err := s.FlipByte(chunk, offset)
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		writeJSON(w, http.StatusOK, flipped)
	})
	if unsafe {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusForbidden, fmt.Sprintf("%s is refused: the stack was started without -unsafe", r.URL.Path))
	})
}

func number(r *http.Request, name string) (int, error) {
	value := r.URL.Query().Get(name)
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("parameter %s=%q: must be a number, as in /debug/flip?chunk=0&offset=3", name, value)
	}
	return n, nil
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"error": message})
}

// writeJSON has nobody to report a failed write to but the client that left.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
