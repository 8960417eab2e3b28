package paced_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/row"
)

func TestMain(m *testing.M) {
	if served, err := paced.Main(); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const ms = time.Millisecond

// ask puts a request to a server as if it had come over a wire.
func ask(ctx context.Context, s *paced.Server, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body)))
	return w
}

// Times are exact by the clock of the server: here one that only moves when all
// wait.
func TestTimesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := paced.New(paced.Config{TTFT: 50 * ms, ITL: 5 * ms})
		var asking sync.WaitGroup
		for i := range 3 {
			asking.Go(func() {
				<-time.After(time.Duration(i) * 20 * ms)
				ask(t.Context(), s, "/v1/completions", fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":%d,"stream":true}`, 10+i))
			})
		}
		asking.Wait()
		truth := s.Truth()
		require.Equal(t, []paced.Record{
			{TTFT: 50 * ms, E2E: 95 * ms, Tokens: 10}, {TTFT: 50 * ms, E2E: 100 * ms, Tokens: 11}, {TTFT: 50 * ms, E2E: 105 * ms, Tokens: 12},
		}, truth.Records)
		require.Equal(t, 3, truth.Peak)
		require.Equal(t, 145*ms, truth.Elapsed, "from the first one's entry to the last one's end")
		require.Equal(t, 50*ms, truth.Percentile(0.99))
		require.True(t, s.Begun())
		s.Forget()
		require.Empty(t, s.Truth().Records)
		require.False(t, s.Begun())
	})
}

// A request that its client gives up is in no truth.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := paced.New(paced.Config{TTFT: 50 * ms, ITL: 5 * ms})
		ctx, cancel := context.WithTimeout(t.Context(), 60*ms)
		defer cancel()
		ask(ctx, s, "/v1/completions", `{"prompt":"a b","max_tokens":10,"stream":true}`)
		require.Empty(t, s.Truth().Records)
		require.Equal(t, 1, s.Truth().Peak)
	})
}

func TestRefused(t *testing.T) {
	s := paced.New(paced.Config{})
	for _, body := range []string{`{"prompt":[1]`, `{"prompt":[1],"max_tokens":1}`} {
		require.Equal(t, 400, ask(t.Context(), s, "/v1/completions", body).Code, body)
	}
	require.Empty(t, s.Truth().Records)
}

// What the server sends is what the client that measures reads.
func TestClientReadsIt(t *testing.T) {
	server := httptest.NewServer(paced.New(paced.Config{}))
	defer server.Close()
	client := openai.New(openai.Config{BaseURL: server.URL, Model: paced.Model, Concurrency: 1})
	defer client.Close()
	for name, got := range map[string]row.Timeline{
		"completions": client.Do(t.Context(), row.Request{ID: "r", Prompt: []int32{5, 6, 7}, MaxTokens: 3, IgnoreEOS: true}),
		"chat":        client.Chat(t.Context(), openai.ChatRequest{ID: "r", Messages: []openai.Message{{Role: "user", Content: "hello"}}, MaxTokens: 3}),
	} {
		require.Equal(t, row.OK, got.Status, "%s: %s", name, got.Err)
		require.Equal(t, " w0 w1 w2", got.Text, name)
		require.Equal(t, []int32{100, 101, 102}, got.Tokens, name)
		require.Equal(t, 3, got.Usage.CompletionTokens, name)
		require.Equal(t, "length", got.FinishReason, name)
		if name == "completions" {
			require.Equal(t, 3, got.Usage.PromptTokens)
		}
	}
}

// The server in another process tells what it did, and ends when asked to.
func TestProcess(t *testing.T) {
	p, err := paced.Start(paced.Config{})
	require.NoError(t, err)
	client := openai.New(openai.Config{BaseURL: p.URL, Model: paced.Model, Concurrency: 4})
	seen, err := paced.Drive(t.Context(), client, paced.Load{Streams: 4, Requests: 120, InputLen: 8, OutputLen: 5})
	require.NoError(t, err)
	require.Equal(t, 120, seen.Requests)
	require.Zero(t, seen.Failed)
	require.Equal(t, 600, seen.Tokens)
	require.Positive(t, seen.CPU)
	require.Positive(t, seen.RSS)
	truth, err := p.Truth(t.Context())
	require.NoError(t, err)
	require.Len(t, truth.Records, 120)
	require.LessOrEqual(t, truth.Peak, 4)
	begun, err := p.Begun(t.Context())
	require.NoError(t, err)
	require.True(t, begun)
	client.Close()
	require.NoError(t, p.Stop())

	_, err = paced.Drive(t.Context(), client, paced.Load{Streams: 1, Requests: 1, InputLen: 1, OutputLen: 1})
	require.ErrorContains(t, err, "none was answered")
	require.Error(t, p.Forget(t.Context()))
	_, err = json.Marshal(seen)
	require.NoError(t, err)
}
