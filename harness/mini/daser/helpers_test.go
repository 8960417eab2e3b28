package daser

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/engine"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

const (
	size      = 16 // B
	waitLimit = 20 * time.Second
	poll      = time.Millisecond
)

var nano = sync.OnceValue(func() *model.Model {
	m, err := model.New(model.Nano())
	if err != nil {
		panic(err)
	}
	return m
})

// An object is a JSON object.
type object map[string]any

// A stack is an engine with DaseR behind and in front of it.
type stack struct {
	store      *Store
	check      *Check
	injector   *fault.Injector
	engine     *engine.Engine
	engineHTTP *httptest.Server
	server     *Server
	url        string // of DaseR
}

// An option changes how a stack is made.
type option func(*plan)

type plan struct {
	tiers       tier.Config
	server      ServerConfig
	beforeWrite func()
	safe        bool
}

func newStack(t *testing.T, mode Mode, options ...option) *stack {
	t.Helper()
	p := plan{tiers: tier.Config{L1Bytes: 64 << 20}, beforeWrite: func() {}}
	p.server.Prefix = []int32{}
	for _, o := range options {
		o(&p)
	}
	s := &stack{injector: fault.NewInjector(nano(), size)}
	var err error
	s.store, err = startStore(StoreConfig{Mode: mode, Model: nano(), BlockSize: size, Tiers: p.tiers, Planted: s.injector.Has}, p.beforeWrite)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.store.Close()) })
	s.check = NewCheck(s.injector.WrapStore(s.store), s.store)
	s.engine, err = engine.New(engine.Config{Model: nano(), ModelName: "nano", BlockSize: size, NumBlocks: 600, MaxSeqs: 4, Store: s.check})
	require.NoError(t, err)
	s.engineHTTP = httptest.NewServer(s.injector.WrapHandler(s.engine.Handler()))
	t.Cleanup(s.engineHTTP.Close)
	p.server.Store, p.server.Engine = s.store, s.engineHTTP.URL
	if !p.safe {
		p.server.Check = s.check
	}
	s.server = NewServer(p.server)
	t.Cleanup(s.server.Close)
	require.NoError(t, s.server.Start(t.Context()))
	front := httptest.NewServer(s.server.Handler())
	t.Cleanup(front.Close)
	s.url = front.URL
	return s
}

// call returns status and body.
func call(t *testing.T, method, url string, body any) (int, string) {
	t.Helper()
	var data []byte
	if text, ok := body.(string); ok {
		data = []byte(text)
	} else if body != nil {
		var err error
		data, err = json.Marshal(body)
		require.NoError(t, err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(answer)
}

// do calls DaseR and reads an answer that is no error.
func (s *stack) do(t *testing.T, method, path string, body, into any) {
	t.Helper()
	status, answer := call(t, method, s.url+path, body)
	require.Less(t, status, 300, answer)
	if into != nil {
		require.NoError(t, json.Unmarshal([]byte(answer), into), answer)
	}
}

// refused calls DaseR and requires an error.
func (s *stack) refused(t *testing.T, method, path string, body any, status int, about string) {
	t.Helper()
	got, answer := call(t, method, s.url+path, body)
	require.Equal(t, status, got, answer)
	require.Contains(t, answer, `{"detail":`)
	require.Contains(t, answer, about)
}

func (s *stack) drain(t *testing.T) { s.do(t, http.MethodPost, "/drain", nil, nil) }

// upload returns the document's id.
func (s *stack) upload(t *testing.T, tokens []int32) string {
	t.Helper()
	var answer struct {
		ID string `json:"doc_id"`
	}
	s.do(t, http.MethodPost, "/documents", object{"title": "a", "token_ids": tokens}, &answer)
	return answer.ID
}

// An outcome is what a test reads of a completion.
type outcome struct {
	tokens   []int32
	logprobs []float64
	prompt   int // tokens
	cached   int
}

// greedy asks for an answer that can be compared.
var greedy = object{"max_tokens": 8, "temperature": 0, "ignore_eos": true, "logprobs": 1, "return_token_ids": true}

// infer asks with ids and reads the stream.
func (s *stack) infer(t *testing.T, task []int32, cached bool, documents ...string) outcome {
	t.Helper()
	return s.inferBody(t, object{"doc_ids": documents, "task_token_ids": task, "use_kv_cache": cached})
}

func (s *stack) inferBody(t *testing.T, body object) outcome {
	t.Helper()
	body["stream"], body["gen_params"] = true, greedy
	status, answer := call(t, http.MethodPost, s.url+"/infer", body)
	require.Equal(t, http.StatusOK, status, answer)
	return readStream(t, answer)
}

// complete sends a prompt to the engine itself.
func (s *stack) complete(t *testing.T, prompt []int32, more object) outcome {
	t.Helper()
	body := object{"prompt": prompt, "stream": true, "stream_options": object{"include_usage": true}}
	for _, fields := range []object{greedy, more} {
		for name, value := range fields {
			body[name] = value
		}
	}
	status, answer := call(t, http.MethodPost, s.engineHTTP.URL+"/v1/completions", body)
	require.Equal(t, http.StatusOK, status, answer)
	return readStream(t, answer)
}

func readStream(t *testing.T, stream string) (o outcome) {
	t.Helper()
	require.True(t, strings.HasSuffix(stream, "data: [DONE]\n\n"), stream)
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || strings.TrimSpace(data) == "[DONE]" {
			continue
		}
		var event struct {
			Choices []struct {
				TokenIDs []int32 `json:"token_ids"`
				Logprobs struct {
					Tokens []float64 `json:"token_logprobs"`
				} `json:"logprobs"`
			} `json:"choices"`
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		require.NoError(t, json.Unmarshal([]byte(data), &event), data)
		for _, c := range event.Choices {
			o.tokens = append(o.tokens, c.TokenIDs...)
			o.logprobs = append(o.logprobs, c.Logprobs.Tokens...)
		}
		if event.Usage != nil {
			o.prompt, o.cached = event.Usage.Prompt, event.Usage.Details.Cached
		}
	}
	return o
}

// requireSame compares what was generated, to the last bit.
func requireSame(t *testing.T, want, got outcome) {
	t.Helper()
	require.Equal(t, want.tokens, got.tokens)
	require.Equal(t, want.logprobs, got.logprobs)
}

// tokens returns n ids that depend on seed.
func tokens(seed, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(8 + (i*i*31+i*7+seed*101+seed*i*3)%1000)
	}
	return ids
}

func request(id string, ids []int32) kv.Request { return kv.Request{ID: id, Tokens: ids} }

// counter reads a series from /metrics; -1 where it is absent.
func (s *stack) counter(t *testing.T, series string) float64 {
	t.Helper()
	status, text := call(t, http.MethodGet, s.url+"/metrics", nil)
	require.Equal(t, http.StatusOK, status)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindStringSubmatch(text)
	if found == nil {
		return -1
	}
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return value
}
