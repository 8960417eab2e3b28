package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// A ServerError is what a server said instead of an answer, in one of the
// shapes seen: {"error":{"message","type","param","code"}} (vLLM 0.32.0, with
// HTTP 4xx and 5xx and inside streams), {"detail":…} (the framework under it,
// for unknown paths and methods), the same keys at the top level (older
// servers), {"error":"text"}, plain text.
type ServerError struct {
	HTTP    int    // HTTP status; 0: an event inside a stream
	Type    string // e.g. BadRequestError; empty: not given
	Message string
	Param   string // the field of the request that is wrong, where given
}

func (e *ServerError) Error() string {
	var b strings.Builder
	if e.HTTP != 0 {
		fmt.Fprintf(&b, "HTTP %d: ", e.HTTP)
	}
	if e.Type != "" {
		b.WriteString(e.Type + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// maxMessage is how much of a message is kept, in bytes.
const maxMessage = 1 << 10

// parseError reads an error body of any shape. The message is never empty.
func parseError(status int, body []byte) *ServerError {
	e := &ServerError{HTTP: status}
	var known struct {
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
		Message string          `json:"message"`
		Type    string          `json:"type"`
	}
	if json.Unmarshal(body, &known) == nil {
		var nested struct {
			Message string          `json:"message"`
			Type    string          `json:"type"`
			Param   json.RawMessage `json:"param"`
		}
		switch {
		case json.Unmarshal(known.Error, &nested) == nil && nested.Message != "":
			e.Message, e.Type, e.Param = nested.Message, nested.Type, textOf(nested.Param)
		case known.Message != "":
			e.Message, e.Type = known.Message, known.Type
		default:
			e.Message = textOf(known.Error) + textOf(known.Detail)
		}
	}
	if e.Message == "" {
		e.Message = string(bytes.TrimSpace(body))
	}
	if e.Message == "" {
		e.Message = "no message"
		if text := http.StatusText(status); text != "" {
			e.Message = text
		}
	}
	return e
}

// textOf is a JSON string's value, other JSON as it stands, nothing for null.
func textOf(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// shorten cuts a text to maxMessage bytes at a rune.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// secrets are the strings that must not appear in an error: servers echo keys
// ("invalid API key: …"), and addresses may hold a password.
type secrets []string

func newSecrets(cfg Config) secrets {
	var out secrets
	add := func(value string) {
		if value = strings.TrimSpace(value); value != "" {
			out = append(out, value)
		}
	}
	add(cfg.APIKey)
	for name, values := range cfg.Header {
		if !sensitive(name) {
			continue
		}
		for _, value := range values {
			_, credentials, found := strings.Cut(value, " ")
			add(value)
			if found {
				add(credentials)
			}
		}
	}
	// By hand, because an address that does not parse is quoted whole.
	if at := strings.LastIndex(cfg.BaseURL, "@"); at >= 0 {
		_, user, _ := strings.Cut(cfg.BaseURL[:at], "//")
		_, password, _ := strings.Cut(user, ":")
		add(user)
		add(password)
		if plain, err := url.PathUnescape(password); err == nil {
			add(plain)
		}
	}
	// A secret inside another one must not be replaced first.
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

func sensitive(header string) bool {
	header = strings.ToLower(header)
	for _, word := range []string{"auth", "key", "token", "secret", "cookie", "password"} {
		if strings.Contains(header, word) {
			return true
		}
	}
	return false
}

// hide replaces the secrets in a text, then shortens it: the other order
// could leave the half of one.
func (s secrets) hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return shorten(text)
}
