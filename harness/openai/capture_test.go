package openai

import (
	"bytes"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// capture plays a stream that vLLM 0.32.0 sent, one event a read.
func capture(t *testing.T, name string) row.Timeline {
	t.Helper()
	stream, err := os.ReadFile(filepath.Join("testdata/captures", name+".sse"))
	require.NoError(t, err)
	return play(bytes.SplitAfter(stream, []byte("\n\n")), nil, nominal)
}

func cachedOf(t *testing.T, got row.Timeline) int {
	t.Helper()
	cached, known := got.Cached()
	require.True(t, known)
	return cached
}

func TestCapturedCompletions(t *testing.T) {
	cold, warm := capture(t, "completions-stream-cold"), capture(t, "completions-stream-warm")
	for _, got := range []row.Timeline{cold, warm} {
		require.Equal(t, row.OK, got.Status, got.Err)
		require.Empty(t, got.Warnings)
		require.Equal(t, 69, got.Usage.PromptTokens)
		require.Equal(t, 6, got.Usage.CompletionTokens)
		require.Equal(t, []int32{3760, 1987, 653, 3962, 1259, 1987}, got.Tokens)
		require.Equal(t, " w3760 w1987 w653 w3962 w1259 w1987", got.Text)
		require.Equal(t, "length", got.FinishReason)
		require.Len(t, got.Logprobs, 6)
		require.Equal(t, row.TokenLogprob{
			Logprob: -3.494650363922119, Top: []float64{-3.494650363922119, -4.057150363922119},
		}, got.Logprobs[0])
		latencies, valid := ITL(got)
		require.True(t, valid)
		require.Len(t, latencies, 5)
	}
	require.Equal(t, 0, cachedOf(t, cold), "0 is said, not left out")
	require.Equal(t, 64, cachedOf(t, warm))
	require.Equal(t, cold.Logprobs, warm.Logprobs)
}

func TestCapturedShapes(t *testing.T) {
	plain := capture(t, "completions-stream-plain")
	require.Equal(t, row.OK, plain.Status, plain.Err)
	require.Empty(t, plain.Tokens, "the server was not asked for ids")
	require.Empty(t, plain.Logprobs)
	tokens, source := OutputTokens(plain)
	require.Equal(t, 6, tokens)
	require.Equal(t, FromUsage, source)

	continuous := capture(t, "completions-stream-continuous-usage")
	require.Equal(t, row.OK, continuous.Status, continuous.Err)
	require.Equal(t, 3, continuous.Usage.CompletionTokens, "the last account counts")
	require.Equal(t, 64, cachedOf(t, continuous))

	chat := capture(t, "chat-stream")
	require.Equal(t, row.OK, chat.Status, chat.Err)
	require.Equal(t, " w278 w2851 w1612 w1500", chat.Text)
	require.Equal(t, []int32{278, 2851, 1612, 1500}, chat.Tokens)
	require.Equal(t, nominal(1), chat.FirstByte)
	require.Equal(t, nominal(2), chat.FirstToken, "the role chunk is no token")
	require.Equal(t, nominal(5), chat.LastToken, "the usage chunk is none either")
}

// KV damaged on disk: the same usage as a clean hit, and only the outputs say
// that something is wrong.
func TestCapturedCorruption(t *testing.T) {
	cold, hit := capture(t, "kvfile-cold"), capture(t, "kvfile-warm-clean")
	require.Equal(t, 0, cachedOf(t, cold))
	require.Equal(t, 64, cachedOf(t, hit))
	require.Equal(t, cold.Tokens, hit.Tokens)
	require.Equal(t, cold.Logprobs, hit.Logprobs)
	for _, name := range []string{"kvfile-warm-corrupted", "kvfile-warm-nan"} {
		damaged := capture(t, name)
		require.Equal(t, row.OK, damaged.Status, damaged.Err)
		require.Equal(t, hit.Usage, damaged.Usage)
		require.Equal(t, []int32{0, 0, 0, 0}, damaged.Tokens)
		require.Len(t, damaged.Logprobs, 4)
		for _, token := range damaged.Logprobs {
			require.True(t, math.IsNaN(token.Logprob))
			require.Len(t, token.Top, 2)
			require.True(t, math.IsNaN(token.Top[0]) && math.IsNaN(token.Top[1]))
		}
		require.Empty(t, damaged.Text)
		_, any := damaged.TTFT()
		require.True(t, any, "ids are tokens, though they decode to nothing")
		require.True(t, damaged.FirstContent.IsZero())
	}
}

func TestCapturedEngineDeath(t *testing.T) {
	got := capture(t, "engine-death-stream")
	require.Equal(t, row.StreamError, got.Status)
	require.Contains(t, got.Err, "InternalServerError: EngineCore encountered an issue.")
	require.False(t, InLatency(got))
	_, any := got.TTFT()
	require.False(t, any)
}

// Every answer that is not a stream, as the real server gave it.
func TestCapturedErrors(t *testing.T) {
	messages := map[string]string{
		"err-bad-salt":               "BadRequestError: Parameter 'cache_salt' must be a non-empty string if provided.",
		"err-bad-type":               "Bad Request: 1 validation error:",
		"err-empty-prompt":           "BadRequestError: You must pass at least one prompt",
		"err-logprobs-too-many":      "Requested sample logprobs of 99, which is greater than max allowed: 20",
		"err-malformed-json":         "Bad Request: 1 validation error:",
		"err-negative-max-tokens":    "BadRequestError: max_tokens must be at least 1, got -1.",
		"err-not-found":              "HTTP 404: Not Found",
		"err-prompt-exactly-max-len": "BadRequestError: max_tokens must be at least 1, got 0.",
		"err-salt-slash":             "BadRequestError: Parameter 'cache_salt' must be at most 128 characters",
		"err-stream-prompt-logprobs": "BadRequestError: `prompt_logprobs` are not available when `stream=True`.",
		"err-stream-too-long":        "maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens",
		"err-token-out-of-vocab":     "BadRequestError: Token id 999999 is out of vocabulary",
		"err-too-long":               "maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens",
		"err-unknown-model":          "HTTP 404: NotFoundError: The model `nope` does not exist. Valid aliases: tiny.",
		// 200 with the whole completion as JSON: the server did not stream.
		"err-priority":                    `answer is "application/json", not an event stream: {"id":"cmpl-`,
		"err-prompt-plus-output-too-long": `answer is "application/json", not an event stream: {"id":"cmpl-`,
		"ok-unknown-field":                `answer is "application/json", not an event stream: {"id":"cmpl-`,
	}
	files, err := filepath.Glob("testdata/captures/*.http")
	require.NoError(t, err)
	require.Len(t, files, len(messages))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			head, body, found := strings.Cut(string(text), "\n\n")
			require.True(t, found)
			status, err := strconv.Atoi(strings.TrimPrefix(strings.SplitN(head, "\n", 2)[0], "HTTP "))
			require.NoError(t, err)
			server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				w.Write([]byte(body))
			})
			got := newClient(t, Config{BaseURL: server.URL}).Do(t.Context(), shortRequest("r"))
			want := row.HTTPError
			if status == http.StatusOK {
				want = row.StreamError
			}
			require.Equal(t, want, got.Status)
			require.Equal(t, status, got.HTTP)
			require.Contains(t, got.Err, messages[name])
			require.False(t, got.End.IsZero())
		})
	}
}
