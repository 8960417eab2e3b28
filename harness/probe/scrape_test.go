package probe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func TestScraper(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string // of the error; empty: none
	}{
		{"page", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "" || r.URL.Path != "/metrics" {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = w.Write([]byte("c_total 3\n"))
		}, ""},
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "engine is dead", http.StatusServiceUnavailable)
		}, `HTTP status 503 Service Unavailable: "engine is dead"`},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("c_total 3\n"))
		}, "unexpected EOF"},
		{"not metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}\n")) }, "parsing metrics of engine"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			scraper := New("engine", server.URL+"/metrics", server.Client())
			require.Equal(t, "engine", scraper.Name())
			if c.name == "hangs" {
				scraper.Deadline = 20 * time.Millisecond
			}
			got, err := scraper.Snapshot(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, row.Snapshot{Probe: "engine", Series: []row.Series{{Name: "c_total", Value: 3}}}, got)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "scraping engine at "+server.URL+"/metrics")
			require.Empty(t, got)
		})
	}
	t.Run("own client, server gone, password kept back", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		address := server.Listener.Addr().String()
		server.Close()
		_, err := New("backend", "http://user:secret@"+address+"/metrics", nil).Snapshot(t.Context())
		require.ErrorContains(t, err, "scraping backend at http://user:xxxxx@"+address)
		require.NotContains(t, err.Error(), "secret")
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := New("backend", "http://127.0.0.1:1/metrics", nil).Snapshot(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestBlockSize(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       int
		all        []int
	}{
		{"both", `vllm:cache_config_info{block_size="16",effective_attention_block_size="32"} 1`, 32, []int{32}},
		{"older, with one", `vllm:cache_config_info{block_size="16",engine="0"} 1`, 16, []int{16}},
		{"not resolved", `vllm:cache_config_info{block_size="64",effective_attention_block_size="None"} 1`, 64, []int{64}},
		{"engines agree", "vllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1\nvllm:cache_config_info{block_size=\"16\",engine=\"1\"} 1", 16, []int{16}},
		{"engines disagree", "vllm:cache_config_info{block_size=\"32\",engine=\"0\"} 1\nvllm:cache_config_info{block_size=\"16\",engine=\"1\"} 1", 0, []int{16, 32}},
		{"no labels", "vllm:cache_config_info 1", 0, nil},
		{"absent", "up 1", 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, c.page+"\n")
			got, ok := BlockSize(s)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != 0, ok)
			require.Equal(t, c.all, BlockSizes(s))
		})
	}
}
