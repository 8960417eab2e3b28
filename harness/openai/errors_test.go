package openai

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

func TestParseError(t *testing.T) {
	tests := []struct {
		name, body, want string
		status           int
	}{
		{"vLLM", `{"error":{"message":"m","type":"BadRequestError","param":"logprobs","code":400}}`, "HTTP 400: BadRequestError: m", 400},
		{"in a stream", `{"error":{"message":"m","type":"InternalServerError","param":null,"code":500}}`, "InternalServerError: m", 0},
		{"the framework", `{"detail":"Not Found"}`, "HTTP 404: Not Found", 404},
		{"the framework's lists", `{"detail":[{"loc":["body"],"msg":"m"}]}`, `HTTP 422: [{"loc":["body"],"msg":"m"}]`, 422},
		{"top level", `{"object":"error","message":"m","type":"T","param":null,"code":40001}`, "HTTP 400: T: m", 400},
		{"a bare text", `{"error":"m"}`, "HTTP 500: m", 500},
		{"no message in it", `{"error":{"code":7}}`, `HTTP 500: {"code":7}`, 500},
		{"plain text", "upstream gone\n", "HTTP 502: upstream gone", 502},
		{"an empty body", "", "HTTP 503: Service Unavailable", 503},
		{"an unknown status without a body", "", "HTTP 599: no message", 599},
		{"other JSON", `[1]`, "HTTP 500: [1]", 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, parseError(tt.status, []byte(tt.body)).Error())
		})
	}
	require.Equal(t, "logprobs", parseError(400, []byte(tests[0].body)).Param)
}

// Bytes that are not the protocol, or that say that the answer failed: what
// came before them is kept.
func TestStreamErrors(t *testing.T) {
	tests := []struct{ name, event, want string }{
		{"malformed JSON", `data: {"choices":[`, `decoding event 2 of the stream: unexpected end of JSON input: {"choices":[`},
		{"wrong type", `data: {"choices":7}`, "decoding event 2 of the stream: json: cannot unmarshal number"},
		{"a bare NaN", `data: {"choices":[{"logprobs":{"token_logprobs":[NaN]}}]}`, "decoding event 2 of the stream: invalid character 'N'"},
		{"another choice", `data: {"choices":[{"index":1,"text":"x"}]}`, "choice 1, though one was asked for"},
		{"tool call without bounds", `data: {"choices":[{"delta":{"tool_calls":[{"index":1024}]}}]}`, "tool call 1024, want 0 to 1023"},
		{"negative usage", `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-1}}}`, "usage counts -1 tokens"},
		{"error object", `data: {"error":{"message":"boom","type":"T"}}`, "error event in the stream: T: boom"},
		{"error text", `data: {"error":"boom"}`, "error event in the stream: boom"},
		{"error at the top level", `data: {"object":"error","message":"boom","type":"T"}`, "error event in the stream: T: boom"},
		{"event named error", "event: error\ndata: boom", "error event in the stream: boom"},
		{"finish reason error", `data: {"choices":[{"index":0,"text":"","finish_reason":"error"}]}`, `the server gave up: finish reason "error"`},
		{"finish reason abort", `data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`, `the server gave up: finish reason "abort"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stream := "data: " + someToken + "\n\n" + tt.event + "\n\ndata: " + lastToken + "\n\ndata: [DONE]\n\n"
			got := play([][]byte{[]byte(stream)}, nil, nominal)
			require.Equal(t, row.StreamError, got.Status)
			require.Contains(t, got.Err, tt.want)
			require.Equal(t, " w9", got.Text)
			require.Equal(t, nominal(1), got.FirstToken)
			_, source := OutputTokens(got)
			require.Equal(t, Unknown, source)
		})
	}
}

// Whatever echoes a secret, no error shows it.
func TestSecretsAreHidden(t *testing.T) {
	const key, header, password = "sk-very-secret", "tok-other-secret", "pass-word"
	leaks := []struct {
		name   string
		answer func(w http.ResponseWriter)
	}{
		{"error body", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"bad key %s or %s for %s","type":"%s"}}`, key, header, password, key)
		}},
		{"plain body", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, strings.Repeat("x", maxMessage-5), key, header, password)
		}},
		{"error event", func(w http.ResponseWriter) { writeEvent(w, `{"error":"`+key+header+password+`"}`) }},
		{"unreadable event", func(w http.ResponseWriter) { writeEvent(w, strings.Repeat("x", 70)+key+header+password) }},
		{"no event", func(w http.ResponseWriter) { fmt.Fprint(w, key, header, password) }},
	}
	for _, tt := range leaks {
		t.Run(tt.name, func(t *testing.T) {
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				tt.answer(w)
			})
			client := newClient(t, Config{
				BaseURL: strings.Replace(server.URL, "//", "//me:"+password+"@", 1),
				APIKey:  key,
				Header:  http.Header{"X-Access-Token": {header}},
			})
			_, err := client.Version(t.Context())
			require.Error(t, err)
			got := client.Do(t.Context(), shortRequest("r"))
			require.NotEqual(t, row.OK, got.Status)
			for _, text := range []string{got.Err, err.Error()} {
				for _, secret := range []string{key, header, password, key[:5], "me:pass"} {
					require.NotContains(t, text, secret)
				}
			}
		})
	}
	for _, base := range []string{"http://me:" + password + "@127.0.0.1:1", "http://me:%zz" + password + "@host"} {
		client := newClient(t, Config{BaseURL: base})
		got := client.Do(t.Context(), shortRequest("r"))
		require.Equal(t, row.Unreachable, got.Status)
		require.NotContains(t, got.Err, password)
		require.NotContains(t, client.Health(t.Context()).Error(), password)
	}
}
