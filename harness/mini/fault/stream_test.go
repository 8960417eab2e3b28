package fault

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Streams of every length break before their finish reason, after at most two
// healthy chunks.
func TestStreamsThatEndBadly(t *testing.T) {
	for _, test := range []struct {
		fault Fault
		ends  error
		tail  string
	}{
		{ErrorEvent, nil, errorEvent},
		{Truncate, io.ErrUnexpectedEOF, ""},
	} {
		for length := 1; length <= 5; length++ {
			t.Run(fmt.Sprintf("%s/%d", test.fault, length), func(t *testing.T) {
				e, _, url := serve(t, test.fault)
				code, answer, err := post(t, url+"/v1/completions", fmt.Sprintf(`{"prompt":[1],"max_tokens":%d,"stream":true}`, length))
				require.Equal(t, http.StatusOK, code)
				require.ErrorIs(t, err, test.ends)
				healthy, tail := strings.CutSuffix(answer, test.tail)
				require.True(t, tail)
				require.Equal(t, min(length-1, healthyChunks), strings.Count(healthy, "text_completion"))
				require.NotContains(t, answer, `"finish_reason":"`)
				require.NotContains(t, healthy, "[DONE]")
				require.True(t, <-e.left, "the engine is told, so that it stops computing")
			})
		}
	}
}

func TestTruncatedAnswerInOnePiece(t *testing.T) {
	_, _, url := serve(t, Truncate)
	_, answer, err := post(t, url+"/v1/completions", whole)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, strings.HasPrefix(answer, `{"prompt":[1,2,3]`))
	require.False(t, strings.HasSuffix(answer, "}"))
}

func TestStallLastsUntilTheClientLeaves(t *testing.T) {
	e, _, url := serve(t, Stall)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(streamed))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	lines := bufio.NewScanner(response.Body)
	for n := 0; n < healthyChunks && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			n++
		}
	}
	require.Empty(t, e.left, "the engine is held in its write")
	leave()
	require.True(t, <-e.left)
	_ = response.Body.Close()
}

func TestClearLetsStalledStreamsGo(t *testing.T) {
	_, i, url := serve(t, Stall)
	ended := make(chan error)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(streamed))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	go func() {
		_, err := io.ReadAll(response.Body)
		ended <- err
	}()
	i.Clear()
	require.Contains(t, []error{io.ErrUnexpectedEOF, nil}, <-ended) // nil: cleared before it stalled
	require.NoError(t, response.Body.Close())
}

// stamped is a ResponseWriter that keeps when each write came.
type stamped struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (s *stamped) Write(p []byte) (int, error) {
	s.at = append(s.at, time.Now())
	return s.ResponseRecorder.Write(p)
}

func TestSlowFirstEmpty(t *testing.T) {
	for _, test := range []struct {
		path   string
		stream []string
		want   []string
		late   int // the event that is late
	}{
		{
			"/v1/completions",
			[]string{`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" w8"}]}`, `[DONE]`},
			[]string{
				`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null}]}`,
				`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" w8"}]}`, `[DONE]`,
			},
			1,
		},
		{
			"/v1/chat/completions",
			[]string{`{"object":"chat.completion.chunk","choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"object":"chat.completion.chunk","choices":[{"delta":{"content":" w8"}}]}`, `[DONE]`},
			[]string{`{"object":"chat.completion.chunk","choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"object":"chat.completion.chunk","choices":[{"delta":{"content":" w8"}}]}`, `[DONE]`},
			1,
		},
	} {
		t.Run(test.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := NewInjector(nil, 4)
				require.NoError(t, i.Plant(SlowFirstEmpty))
				h := i.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for _, e := range test.stream {
						_, _ = io.WriteString(w, "data: "+e+"\n\n")
					}
				}))
				w := &stamped{ResponseRecorder: httptest.NewRecorder()}
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, test.path, strings.NewReader("{}")))
				require.Equal(t, "data: "+strings.Join(test.want, "\n\ndata: ")+"\n\n", w.Body.String())
				require.Len(t, w.at, len(test.want))
				for n := 1; n < len(w.at); n++ {
					wait := time.Duration(0)
					if n == test.late {
						wait = firstTokenDelay
					}
					require.Equal(t, wait, w.at[n].Sub(w.at[n-1]), "before event %d", n)
				}
			})
		})
	}
}
