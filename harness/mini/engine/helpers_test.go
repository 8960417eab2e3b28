package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// nano is the model of most tests.
var nano = sync.OnceValue(func() *model.Model { return mustModel(model.Nano()) })

// captured has the vocabulary and the context of the captured server, and is
// smaller than nano in all else.
var captured = sync.OnceValue(func() *model.Model {
	return mustModel(model.Config{
		Layers: 1, Hidden: 16, Heads: 2, KVHeads: 1, HeadDim: 8, Intermediate: 16,
		Vocab: 4096, Context: 4096, RopeTheta: 10000, Seed: 1,
	})
})

func mustModel(c model.Config) *model.Model {
	m, err := model.New(c)
	if err != nil {
		panic(err)
	}
	return m
}

// newEngine makes an engine over the nano model with a roomy pool, unless
// change says otherwise.
func newEngine(t testing.TB, change func(*Config)) *Engine {
	t.Helper()
	c := Config{Model: nano(), ModelName: "tiny", BlockSize: 16, MaxSeqs: 4, Log: testLog{t}}
	if change != nil {
		change(&c)
	}
	if c.NumBlocks == 0 {
		c.NumBlocks = 4 * blocksFor(c.Model.Config().Context, c.BlockSize)
	}
	e, err := New(c)
	require.NoError(t, err)
	return e
}

func caching(c *Config) { c.PrefixCaching = true }

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// object is a JSON object to send.
type object map[string]any

func (o object) with(more object) object {
	all := object{}
	for k, v := range o {
		all[k] = v
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// do sends a request straight to the handler and waits for the answer.
func do(t testing.TB, e *Engine, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	e.Handler().ServeHTTP(w, r)
	return w
}

func post(t testing.TB, e *Engine, path string, body object) *httptest.ResponseRecorder {
	t.Helper()
	return do(t, e, http.MethodPost, path, marshal(t, body))
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// events are the payloads of a stream, [DONE] included.
func events(t testing.TB, r io.Reader) []string {
	t.Helper()
	var payloads []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		payload, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			require.Empty(t, lines.Text(), "a line that is neither data nor the end of an event")
			continue
		}
		payloads = append(payloads, payload)
	}
	require.NoError(t, lines.Err())
	return payloads
}

// testdata reads a captured file.
func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return b
}

// A result is what a client can tell of a completion.
type result struct {
	tokens   []int32
	logprobs []*float64
	text     string
	finish   string
	stop     any
	prompt   int // usage.prompt_tokens
	cached   int
}

type wireChoice struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	FinishReason *string `json:"finish_reason"`
	StopReason   any     `json:"stop_reason"`
	TokenIDs     []int32 `json:"token_ids"`
	Logprobs     *struct {
		TokenLogprobs []*float64 `json:"token_logprobs"`
	} `json:"logprobs"`
}

type wireChunk struct {
	Choices []wireChoice `json:"choices"`
	Usage   *struct {
		Prompt     int `json:"prompt_tokens"`
		Total      int `json:"total_tokens"`
		Completion int `json:"completion_tokens"`
		Details    *struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error *apiError `json:"error"`
}

// ask is a greedy completion of 8 tokens with logprobs, streamed.
func ask(prompt []int32) object {
	return object{
		"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": true, "logprobs": 3,
		"stream": true, "stream_options": object{"include_usage": true}, "return_token_ids": true,
	}
}

// complete sends a completion, streamed or not, and reads a good answer.
func complete(t testing.TB, e *Engine, body object) result {
	t.Helper()
	return answerOf(t, post(t, e, "/v1/completions", body))
}

// begin sends a completion without waiting; the function that it returns waits.
func begin(t testing.TB, e *Engine, body object) (wait func() *httptest.ResponseRecorder) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(marshal(t, body)))
	r.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() { // ends with the answer
		defer close(done)
		e.Handler().ServeHTTP(w, r)
	}()
	return func() *httptest.ResponseRecorder { <-done; return w }
}

// answerOf reads a good answer.
func answerOf(t testing.TB, w *httptest.ResponseRecorder) result {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	if w.Header().Get("Content-Type") == "application/json" {
		return read(t, []string{w.Body.String()})
	}
	payloads := events(t, w.Body)
	require.Equal(t, "[DONE]", payloads[len(payloads)-1])
	return read(t, payloads[:len(payloads)-1])
}

// read puts the chunks of one prompt together.
func read(t testing.TB, chunks []string) result {
	t.Helper()
	var r result
	for _, payload := range chunks {
		var c wireChunk
		require.NoError(t, json.Unmarshal([]byte(payload), &c), "%s", payload)
		require.Nil(t, c.Error)
		for _, choice := range c.Choices {
			r.text += choice.Text
			r.tokens = append(r.tokens, choice.TokenIDs...)
			if choice.Logprobs != nil {
				r.logprobs = append(r.logprobs, choice.Logprobs.TokenLogprobs...)
			}
			if choice.FinishReason != nil {
				r.finish, r.stop = *choice.FinishReason, choice.StopReason
			}
		}
		if c.Usage != nil && c.Usage.Details != nil {
			require.Equal(t, c.Usage.Prompt+c.Usage.Completion, c.Usage.Total)
			require.Len(t, r.tokens, c.Usage.Completion)
			r.prompt, r.cached = c.Usage.Prompt, *c.Usage.Details.Cached
		}
	}
	return r
}

// prompt is n random ids that are not special.
func prompt(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 7))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = 8 + r.Int32N(1000)
	}
	return ids
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, time.Millisecond, message)
}

// serve runs the engine on a real socket.
func serve(t testing.TB, e *Engine) string {
	t.Helper()
	s := httptest.NewServer(e.Handler())
	t.Cleanup(s.Close)
	return s.URL
}

// open starts a streamed completion over a socket; the caller reads its body.
func open(ctx context.Context, t testing.TB, url string, body object) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader([]byte(marshal(t, body))))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
