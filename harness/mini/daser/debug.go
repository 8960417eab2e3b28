package daser

import (
	"net/http"
	"strconv"
)

// kvCheck is not DaseR's: GET /debug/kvcheck shows the report of the check,
// POST /debug/kvcheck?on=true or false switches it.
func (s *Server) kvCheck(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.cfg.Check == nil:
		writeError(w, http.StatusForbidden, "/debug/kvcheck is refused: the stack was started without -unsafe")
	case r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, s.cfg.Check.Report())
	case r.Method == http.MethodPost:
		on, err := strconv.ParseBool(r.URL.Query().Get("on"))
		if err != nil {
			writeError(w, http.StatusBadRequest, "parameter on="+strconv.Quote(r.URL.Query().Get("on"))+": must be true or false, as in /debug/kvcheck?on=true")
			return
		}
		s.cfg.Check.Switch(on)
		writeJSON(w, http.StatusOK, s.cfg.Check.Report())
	default:
		w.Header().Set("Allow", "GET, POST")
		writeError(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	}
}
