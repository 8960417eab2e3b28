package mini_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

func requireFree(t *testing.T, urls ...string) {
	t.Helper()
	for _, url := range urls {
		listener, err := net.Listen("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err, "the port is still taken")
		require.NoError(t, listener.Close())
	}
}

func begin(t *testing.T, row string, faults ...fault.Fault) *mini.Stack {
	t.Helper()
	s, err := mini.Start(t.Context(), mini.Config{Row: row, BlockSize: 16, Model: model.Nano(), Faults: faults})
	require.NoError(t, err)
	return s
}

// stream asks for a long output and returns after its first token came.
func stream(t *testing.T, ctx context.Context, s *mini.Stack) (*http.Response, *bufio.Reader) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":[8,9,10],"max_tokens":400,"ignore_eos":true,"stream":true}`, s.ModelName())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.EngineURL()+"/v1/completions", strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	lines := bufio.NewReader(response.Body)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)
	return response, lines
}

func TestCloseLeavesNothing(t *testing.T) {
	for _, row := range mini.Rows() {
		t.Run(row, func(t *testing.T) {
			before := runtime.NumGoroutine()
			s := begin(t, row)
			complete(t, s, prompt(1, 40))
			urls := []string{s.EngineURL()}
			if row == mini.LMCache {
				urls = append(urls, s.StoreURL())
			} else {
				require.Empty(t, s.StoreURL())
			}
			if row == mini.DaserChunk || row == mini.DaserPrefix {
				urls = append(urls, s.DaserURL())
			} else {
				require.Empty(t, s.DaserURL())
				require.Nil(t, s.KVCheck())
			}
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, s.Close(t.Context()), "again")
			requireFree(t, urls...)
			requireGoroutines(t, before)
		})
	}
}

func TestCloseDrains(t *testing.T) {
	s := begin(t, mini.LMCache)
	response, lines := stream(t, t.Context(), s)
	closed := make(chan error)
	go func() { closed <- s.Close(t.Context()) }()
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "the running stream came to its end")
	require.Contains(t, string(rest), `"finish_reason":"length"`)
	require.NoError(t, response.Body.Close())
	require.NoError(t, <-closed)
}

// A connection on which nothing was sent, as clients with a pool open, must
// not be waited for.
func TestCloseDoesNotWaitForSilentConnections(t *testing.T) {
	s := begin(t, mini.LMCache)
	for _, url := range []string{s.EngineURL(), s.StoreURL()} {
		silent, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		defer func() { _ = silent.Close() }()
		get(t, url+"/metrics") // by now the server has accepted the silent one
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit/5) // net/http would wait 5 s for each
	defer cancel()
	require.NoError(t, s.Close(ctx))
}

func TestCloseCutsWhatDoesNotEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	s := begin(t, mini.Baseline)
	response, lines := stream(t, t.Context(), s)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Close(now), context.Canceled)
	rest, _ := io.ReadAll(lines)
	require.NotContains(t, string(rest), `"finish_reason":"length"`)
	require.NoError(t, response.Body.Close())
	requireFree(t, s.EngineURL())
	requireGoroutines(t, before)
}

// A client that sends half of a request keeps its handler busy for good.
func TestCloseCutsClientsThatDoNotSend(t *testing.T) {
	before := runtime.NumGoroutine()
	s := begin(t, mini.Baseline)
	half, err := net.Dial("tcp", strings.TrimPrefix(s.EngineURL(), "http://"))
	require.NoError(t, err)
	_, err = io.WriteString(half, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	proceed, err := bufio.NewReader(half).ReadString('\n') // the handler reads the body
	require.NoError(t, err)
	require.Contains(t, proceed, "100 Continue")
	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Close(now), context.Canceled)
	requireGoroutines(t, before)
	require.NoError(t, half.Close())
}

func TestCloseReleasesStalledStreams(t *testing.T) {
	s := begin(t, mini.Baseline, fault.Stall)
	response, lines := stream(t, t.Context(), s)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	require.NoError(t, s.Close(ctx))
	_, err := io.ReadAll(lines)
	require.Contains(t, []error{nil, io.ErrUnexpectedEOF}, err)
	require.NoError(t, response.Body.Close())
}
