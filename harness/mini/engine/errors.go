package engine

import (
	"errors"
	"fmt"
	"net/http"
)

// An apiError is an answer that is no success, in the shape of vLLM 0.32.0:
// {"error": {"message", "type", "param", "code"}}, code being the HTTP status.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

// The errors that do not depend on the request.
var (
	errDead       = serverError("EngineCore encountered an issue. See stack trace (above) for the root cause.")
	errGeneration = serverError("Internal server error")
	errShutdown   = &apiError{Message: "The server is shutting down.", Type: "ServiceUnavailableError", Code: http.StatusServiceUnavailable}
)

func serverError(message string) *apiError {
	return &apiError{Message: message, Type: "InternalServerError", Code: http.StatusInternalServerError}
}

// badRequest is a value that vLLM's own checks refuse.
func badRequest(format string, args ...any) *apiError {
	return &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
}

// badParam names the parameter in the message too; a value that is nil is left
// out.
func badParam(param string, value any, format string, args ...any) *apiError {
	e := badRequest(format, args...)
	e.Param = &param
	if value == nil {
		e.Message += fmt.Sprintf(" (parameter=%s)", param)
	} else {
		e.Message += fmt.Sprintf(" (parameter=%s, value=%v)", param, value)
	}
	return e
}

// invalid is a body that does not fit the schema. detail is what Python's
// validator says, as text.
func invalid(param *string, detail string) *apiError {
	return &apiError{Message: "1 validation error:\n  " + detail, Type: "Bad Request", Param: param, Code: http.StatusBadRequest}
}

// schemaError is a value of the wrong kind at a place in the body.
func schemaError(kind, at, message, input string) *apiError {
	at = "body." + at
	return invalid(&at, fmt.Sprintf("{'type': '%s', 'loc': '%s', 'msg': '%s', 'input': %s}", kind, at, message, input))
}

// apiErrorOf finds the error that the client may see.
func apiErrorOf(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return errGeneration
}
