package daser

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxBody bounds a request: a document of full context in ids is a few tens of
// kilobytes.
const maxBody = 16 << 20

// readBody reads a JSON object. What is no such object, or has members of a
// wrong kind, is the 422 of DaseR's web framework.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("reading the body: %v", err))
		return false
	}
	err = json.Unmarshal(data, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true
	case errors.As(err, &wrong):
		refuse(w, wrong.Field, "Input should be a valid "+wrong.Type.String())
	default:
		refuse(w, "", "JSON decode error: "+err.Error())
	}
	return false
}

// refuse answers 422 about one member of the body.
func refuse(w http.ResponseWriter, member, message string) {
	type problem struct {
		Type string   `json:"type"`
		Loc  []string `json:"loc"`
		Msg  string   `json:"msg"`
	}
	p := problem{"value_error", []string{"body"}, message}
	if member != "" {
		p.Loc = append(p.Loc, member)
	}
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []problem{p}})
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"detail": message})
}

// writeJSON has nobody to report a failed write to but the client that left.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
