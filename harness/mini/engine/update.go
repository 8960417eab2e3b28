package engine

import (
	"fmt"
	"net/http"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// updateWeights gives the model other weights of the same shape, as a trainer
// does between two steps, and empties both caches: what they hold was computed
// with the old ones, and a store behind the engine cannot tell. With
// reset_cache=false that is left to the caller. It answers success:false, and
// does nothing, while requests run.
func (e *Engine) updateWeights(w http.ResponseWriter, r *http.Request) {
	reset := true
	if text := r.URL.Query().Get("reset_cache"); text != "" {
		var err error
		if reset, err = queryBool(text); err != nil {
			writeError(w, badParam("reset_cache", text, "reset_cache must be true or false."))
			return
		}
	}
	config := e.weights.Load().Config()
	config.Seed++
	fresh, err := model.New(config)
	if err == nil && !e.swap(fresh) {
		writeJSON(w, http.StatusOK, struct {
			Success bool `json:"success"`
		}{false})
		return
	}
	if err == nil && reset {
		_, err = e.resetCaches(r.Context(), true)
	}
	if err != nil {
		e.log.Printf("updating the weights: %v", err)
		writeError(w, &apiError{Message: fmt.Sprintf("updating the weights: %v", err), Type: "InternalServerError", Code: http.StatusInternalServerError})
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
	}{true})
}

// swap changes the weights unless requests run or wait.
func (e *Engine) swap(m *model.Model) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.active) > 0 {
		return false
	}
	e.weights.Store(m)
	return true
}
