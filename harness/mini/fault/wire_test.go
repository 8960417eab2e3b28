package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fakeEngine answers as an engine does: max_tokens chunks of an SSE stream
// and a usage event, or one JSON answer. It counts what reached it.
type fakeEngine struct {
	resets, completions atomic.Int64
	hits                atomic.Int64
	left                chan bool // one for each stream whose client left, as the engine sees it
}

func (e *fakeEngine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
		e.resets.Add(1)
		_, _ = io.WriteString(w, `{"success":true}`)
	})
	mux.HandleFunc("/metrics", e.metrics)
	mux.HandleFunc("/v1/completions", e.complete)
	mux.HandleFunc("/v1/chat/completions", e.complete)
	return mux
}

func (e *fakeEngine) complete(w http.ResponseWriter, r *http.Request) {
	e.completions.Add(1)
	var body struct {
		Prompt    json.RawMessage `json:"prompt"`
		MaxTokens int             `json:"max_tokens"`
		MinTokens int             `json:"min_tokens"`
		Stream    bool            `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, `{"error":{"code":400}}`, http.StatusBadRequest)
		return
	}
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":99,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":64}}`, body.MaxTokens)
	if !body.Stream {
		w.Header().Set("Content-Type", "application/json")
		answer := fmt.Sprintf(`{"prompt":%s,"min_tokens":%d,"choices":[{"finish_reason":"length"}],%s}`, body.Prompt, body.MinTokens, usage)
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		_, _ = io.WriteString(w, answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for n := range body.MaxTokens {
		finish := "null"
		if n == body.MaxTokens-1 {
			finish = `"length"`
		}
		e.event(w, fmt.Sprintf(`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" w%d","finish_reason":%s}]}`, n, finish))
		if r.Context().Err() != nil {
			e.left <- true
			return
		}
	}
	e.event(w, `{"choices":[],`+usage+`}`)
	e.event(w, "[DONE]")
}

// event sends an event in two writes, neither of which is a whole one.
func (e *fakeEngine) event(w http.ResponseWriter, data string) {
	_, _ = io.WriteString(w, "data: "+data[:1])
	_, _ = io.WriteString(w, data[1:]+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

// serve starts the engine behind an injector with faults.
func serve(t *testing.T, faults ...Fault) (*fakeEngine, *Injector, string) {
	t.Helper()
	e := &fakeEngine{left: make(chan bool, 100)}
	i := NewInjector(nil, 4)
	require.NoError(t, i.Plant(faults...))
	server := httptest.NewServer(i.WrapHandler(e.handler()))
	t.Cleanup(server.Close)
	return e, i, server.URL
}

// post sends a body and returns what came of the answer before it ended, and
// how it ended.
func post(t *testing.T, url, body string) (code int, answer string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { require.NoError(t, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data)
}

const (
	streamed = `{"prompt":[1,2,3],"max_tokens":6,"stream":true}`
	whole    = `{"prompt":[1,2,3],"max_tokens":6}`
)

func events(answer string) []string {
	return strings.Split(strings.TrimSuffix(answer, "\n\n"), "\n\n")
}

func TestHealthyWireIsUntouched(t *testing.T) {
	_, _, url := serve(t)
	direct := httptest.NewServer((&fakeEngine{left: make(chan bool, 9)}).handler())
	defer direct.Close()
	for _, body := range []string{streamed, whole, "{"} {
		wantCode, want, err := post(t, direct.URL+"/v1/completions", body)
		require.NoError(t, err)
		code, got, err := post(t, url+"/v1/completions", body)
		require.NoError(t, err)
		require.Equal(t, wantCode, code)
		require.Equal(t, want, got)
	}
}

func TestReset(t *testing.T) {
	for _, test := range []struct {
		faults []Fault
		want   string
		resets int64
	}{
		{nil, `{"success":true}`, 1},
		{[]Fault{ResetNoop}, `{"success":true}`, 0},
		{[]Fault{ResetFalse}, `{"success":false}`, 0},
	} {
		t.Run(fmt.Sprint(test.faults), func(t *testing.T) {
			e, _, url := serve(t, test.faults...)
			code, answer, err := post(t, url+"/reset_prefix_cache?reset_external=true", "")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code)
			require.Equal(t, test.want, answer)
			require.Equal(t, test.resets, e.resets.Load())
		})
	}
}

func TestRewrittenRequests(t *testing.T) {
	for _, test := range []struct {
		name, body string
		fault      Fault
		prompt     string
		max, min   int
	}{
		{"half the output", `{"prompt":[1,2,3],"max_tokens":7}`, ShortOutput, "[1,2,3]", 3, 0},
		{"at least one token", `{"prompt":[1,2,3],"max_tokens":1}`, ShortOutput, "[1,2,3]", 1, 0},
		{"the minimum too", `{"prompt":[1],"max_tokens":8,"min_tokens":8}`, ShortOutput, "[1]", 4, 4},
		{"half the default", `{"prompt":[1,2,3]}`, ShortOutput, "[1,2,3]", 8, 0},
		{"last id", `{"prompt":[1,2,3],"max_tokens":7}`, DroppedPrompt, "[1,2]", 7, 0},
		{"only id", `{"prompt":[1],"max_tokens":7}`, DroppedPrompt, "[1]", 7, 0},
		{"last word", `{"prompt":"w8 w9 w10","max_tokens":7}`, DroppedPrompt, `"w8 w9"`, 7, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, url := serve(t, test.fault)
			_, answer, err := post(t, url+"/v1/completions", test.body)
			require.NoError(t, err)
			require.Contains(t, answer, `"prompt":`+test.prompt+",")
			require.Contains(t, answer, fmt.Sprintf(`"completion_tokens":%d,`, test.max))
			require.Contains(t, answer, fmt.Sprintf(`"min_tokens":%d,`, test.min))
		})
	}
	_, _, url := serve(t, ShortOutput)
	code, _, err := post(t, url+"/v1/completions", "{")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, code, "malformed bodies are the engine's to judge")
}

func TestPromptLength(t *testing.T) {
	for _, body := range []string{streamed, whole} {
		_, _, url := serve(t, PromptLength)
		_, answer, err := post(t, url+"/v1/completions", body)
		require.NoError(t, err)
		require.Contains(t, answer, `"prompt_tokens":100,`)
		require.Contains(t, answer, `"cached_tokens":64`)
	}
	require.Equal(t, `"prompt_tokens": 10`, string(oneMore([]byte(`"prompt_tokens": 9`))))
}

func TestDropRequests(t *testing.T) {
	e, i, url := serve(t, DropRequests)
	var failed []int
	for n := 1; n <= 7; n++ {
		if _, _, err := post(t, url+"/v1/completions", whole); err != nil {
			failed = append(failed, n)
		}
	}
	require.Equal(t, []int{3, 6}, failed)
	require.EqualValues(t, 5, e.completions.Load())
	i.Clear()
	for range 3 {
		_, _, err := post(t, url+"/v1/completions", whole)
		require.NoError(t, err)
	}
}

func TestDie(t *testing.T) {
	_, i, url := serve(t, Die)
	code, _ := get(t, url+"/health")
	require.Equal(t, http.StatusOK, code, "alive until a stream is under way")

	_, answer, err := post(t, url+"/v1/completions", streamed)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, events(answer), healthyChunks)

	code, _ = get(t, url+"/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	_, _, err = post(t, url+"/v1/completions", streamed)
	require.Error(t, err)
	_, err = http.Get(url + "/metrics")
	require.Error(t, err)

	i.Clear(Die)
	_, answer, err = post(t, url+"/v1/completions", streamed)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix([]byte(answer), []byte("[DONE]\n\n")))
}
