package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// maxBody bounds a request: a prompt of full context in ids is a few tens of
// kilobytes, and a request may have several.
const maxBody = 64 << 20

// fields are the members of a JSON object, read one by one. Unknown ones are
// never looked at. The first value of a wrong kind is kept as the error; the
// messages are those of Python's validator.
type fields struct {
	members map[string]json.RawMessage
	err     *apiError
}

// readFields reads the body of a request.
func readFields(r *http.Request) (*fields, *apiError) {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return nil, invalid(nil, "Unsupported Media Type: Only 'application/json' is allowed")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, badRequest("The body could not be read: %v", err)
	}
	if fault := pythonFault(string(body)); fault != nil {
		return nil, fault.apiError()
	}
	f := &fields{}
	if err := json.Unmarshal(body, &f.members); err != nil || f.members == nil {
		at := "body"
		return nil, invalid(&at, fmt.Sprintf("{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': %s}", pythonInput(body)))
	}
	return f, nil
}

// get returns a member, nil if it is absent or null.
func (f *fields) get(name string) json.RawMessage {
	raw := bytes.TrimSpace(f.members[name])
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (f *fields) fail(e *apiError) {
	if f.err == nil {
		f.err = e
	}
}

// missing fails because a member that must be there is not.
func (f *fields) missing(name string) {
	f.fail(schemaError("missing", name, "Field required", fmt.Sprintf("'<dict of %d items>'", len(f.members))))
}

// integer reads a whole number; also one that is written as a string, as
// Python's validator does.
func (f *fields) integer(name string) (value int, ok bool) {
	raw := f.get(name)
	if raw == nil {
		return 0, false
	}
	text, isString := unquote(raw)
	if !isString {
		text = string(raw)
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
		return int(n), true
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case isString:
		f.fail(schemaError("int_parsing", name, "Input should be a valid integer, unable to parse string as an integer", pythonInput(raw)))
	case err != nil:
		f.fail(schemaError("int_type", name, "Input should be a valid integer", pythonInput(raw)))
	case x != math.Trunc(x):
		f.fail(schemaError("int_from_float", name, "Input should be a valid integer, got a number with a fractional part", pythonInput(raw)))
	case math.Abs(x) >= 1<<63:
		f.fail(schemaError("int_parsing_size", name, "Unable to parse input string as an integer, exceeded maximum size", pythonInput(raw)))
	default:
		return int(x), true
	}
	return 0, false
}

// number reads a float.
func (f *fields) number(name string) (value float64, ok bool) {
	raw := f.get(name)
	if raw == nil {
		return 0, false
	}
	text, isString := unquote(raw)
	if !isString {
		text = string(raw)
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err == nil {
		return x, true
	}
	if isString {
		f.fail(schemaError("float_parsing", name, "Input should be a valid number, unable to parse string as a number", pythonInput(raw)))
	} else {
		f.fail(schemaError("float_type", name, "Input should be a valid number", pythonInput(raw)))
	}
	return 0, false
}

// boolean reads a truth value.
func (f *fields) boolean(name string) (value, ok bool) {
	raw := f.get(name)
	switch text := strings.ToLower(strings.Trim(string(raw), `"`)); text {
	case "":
		return false, false
	case "true", "1", "1.0", "yes", "on", "t", "y":
		return true, true
	case "false", "0", "0.0", "no", "off", "f", "n":
		return false, true
	}
	f.fail(schemaError("bool_parsing", name, "Input should be a valid boolean, unable to interpret input", pythonInput(raw)))
	return false, false
}

// text reads a string.
func (f *fields) text(name string) (value string, ok bool) {
	raw := f.get(name)
	if raw == nil {
		return "", false
	}
	value, ok = unquote(raw)
	if !ok {
		f.fail(schemaError("string_type", name, "Input should be a valid string", pythonInput(raw)))
	}
	return value, ok
}

// into reads anything else; what names the kind that is expected.
func (f *fields) into(name, what string, v any) bool {
	raw := f.get(name)
	if raw == nil {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		f.fail(schemaError("value_error", name, "Input should be a valid "+what, pythonInput(raw)))
		return false
	}
	return true
}

// object reads a member that is an object.
func (f *fields) object(name string) *fields {
	inner := &fields{}
	if !f.into(name, "dictionary", &inner.members) {
		return nil
	}
	return inner
}

func unquote(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// pythonInput writes a value as the validator quotes it.
func pythonInput(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return pythonString(string(raw))
	}
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return pythonBool(v)
	case string:
		return pythonString(v)
	case []any:
		return fmt.Sprintf("'<list of %d items>'", len(v))
	case map[string]any:
		return fmt.Sprintf("'<dict of %d items>'", len(v))
	}
	return string(bytes.TrimSpace(raw))
}
