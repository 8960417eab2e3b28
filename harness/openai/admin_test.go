package openai

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// answering is a client whose server gives one answer to everything; the
// requests that it saw are in seen.
func answering(t *testing.T, status int, body string) (client *Client, seen *[]string) {
	t.Helper()
	seen = new([]string)
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		*seen = append(*seen, fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), text))
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	return newClient(t, Config{BaseURL: server.URL, Model: "tiny"}), seen
}

func captured(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/captures/" + name)
	require.NoError(t, err)
	return string(text)
}

func TestModelsAndVersion(t *testing.T) {
	client, seen := answering(t, 200, captured(t, "models.json"))
	models, err := client.Models(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Model{{ID: "tiny", Root: "models/tiny", MaxModelLen: 4096}}, models)
	require.Equal(t, []string{"GET /v1/models "}, *seen)

	client, seen = answering(t, 200, captured(t, "version.json"))
	version, err := client.Version(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0.32.0", version)
	require.Equal(t, []string{"GET /version "}, *seen)

	client, _ = answering(t, 200, `{}`)
	_, err = client.Version(t.Context())
	require.ErrorContains(t, err, "names no version")
	client, _ = answering(t, 200, `<html>`)
	_, err = client.Models(t.Context())
	require.ErrorContains(t, err, "decoding the answer of GET /v1/models")
	require.ErrorContains(t, err, "<html>")
}

func TestHealth(t *testing.T) {
	client, seen := answering(t, 200, "")
	require.NoError(t, client.Health(t.Context()))
	require.Equal(t, []string{"GET /health "}, *seen)

	client, _ = answering(t, 503, "")
	err := client.Health(t.Context())
	var said *ServerError
	require.ErrorAs(t, err, &said)
	require.Equal(t, 503, said.HTTP)
	require.ErrorContains(t, err, "GET /health: HTTP 503: Service Unavailable")
}

func TestTokenize(t *testing.T) {
	client, seen := answering(t, 200, `{"count":2,"max_model_len":4096,"tokens":[9,10],"token_strs":null}`)
	got, err := client.Tokenize(t.Context(), "w9 w10", false)
	require.NoError(t, err)
	require.Equal(t, Tokenized{Count: 2, MaxModelLen: 4096, Tokens: []int32{9, 10}}, got)
	require.Equal(t, []string{`POST /tokenize {"add_special_tokens":false,"model":"tiny","prompt":"w9 w10"}`}, *seen)

	client, _ = answering(t, 200, `{"count":3,"tokens":[9,10]}`)
	_, err = client.Tokenize(t.Context(), "w9 w10", true)
	require.ErrorContains(t, err, "counts 3 tokens and lists 2")
}

func TestTokenizeChat(t *testing.T) {
	client, seen := answering(t, 200, `{"count":2,"tokens":[4,9]}`)
	got, err := client.TokenizeChat(t.Context(), []Message{{Role: "user", Content: "w9"}})
	require.NoError(t, err)
	require.Equal(t, []int32{4, 9}, got.Tokens)
	require.Equal(t, []string{`POST /tokenize {"add_generation_prompt":true,"chat_template_kwargs":{"enable_thinking":false},` +
		`"messages":[{"role":"user","content":"w9"}],"model":"tiny"}`}, *seen)
}

func TestResetPrefixCache(t *testing.T) {
	tests := []struct {
		name     string
		external bool
		status   int
		body     string
		want     error
		text     string
	}{
		{"done", false, 200, `{"success":true}`, nil, ""},
		{"done with the connector's", true, 200, `{"success":true}`, nil, ""},
		{"refused under 200", true, 200, `{"success":false}`, ErrResetRefused, ""},
		{"older vLLM", false, 200, "", ErrResetUnknown, ""},
		{"a body that says nothing", false, 200, `{"status":"ok"}`, ErrResetUnknown, ""},
		{"no development mode", false, 404, `{"detail":"Not Found"}`, nil, "HTTP 404: Not Found"},
		{"not JSON", false, 200, `done`, nil, "decoding the answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, seen := answering(t, tt.status, tt.body)
			err := client.ResetPrefixCache(t.Context(), tt.external)
			require.Equal(t, []string{fmt.Sprintf("POST /reset_prefix_cache?reset_external=%v ", tt.external)}, *seen)
			switch {
			case tt.want != nil:
				require.ErrorIs(t, err, tt.want)
			case tt.text != "":
				require.ErrorContains(t, err, tt.text)
			default:
				require.NoError(t, err)
			}
		})
	}
}
