package fault

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// metrics has what a page of vLLM has; each scrape finds 100 more hits and
// 1000 more queries. Clients that take gzip get it, as from client_golang.
func (e *fakeEngine) metrics(w http.ResponseWriter, r *http.Request) {
	h := e.hits.Add(100)
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	}
	_, _ = fmt.Fprintf(out, `# HELP vllm:prefix_cache_hits_total hits 7
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} %[1]d.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.5e+09
vllm:prefix_cache_queries_total{engine="0",model_name="m"} %[2]d.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} %[1]d.0
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} %[2]d.0
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} %[1]d.0
vllm:prompt_tokens_by_source_total{engine="0",source="local_cache_hit"} %[1]d.0
vllm:prompt_tokens_cached_total{engine="0"} %[1]d.0
vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} %[1]d.0
vllm:num_requests_running{engine="0"} 2.0
process_start_time_seconds 1000.0
`, h, 10*h)
}

func scrape(t *testing.T, url string) map[string]string {
	t.Helper()
	_, page := get(t, url+"/metrics")
	values := map[string]string{}
	for line := range strings.Lines(page) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != "#" {
			series = strings.NewReplacer(`{engine="0",model_name="m"}`, "", `{engine="0"}`, "", `engine="0",`, "", "vllm:", "").Replace(series)
			values[series] = value
		}
	}
	return values
}

func TestCounters(t *testing.T) {
	for _, test := range []struct {
		fault                 Fault
		hits                  [2]string // in the first and the second scrape
		queries, start, gauge [2]string
	}{
		{StuckCounter, [2]string{"100", "100"}, [2]string{"1000.0", "2000.0"}, [2]string{"1000.0", "1000.0"}, [2]string{"2.0", "2.0"}},
		{StuckCounterZero, [2]string{"0", "0"}, [2]string{"1000.0", "2000.0"}, [2]string{"1000.0", "1000.0"}, [2]string{"2.0", "2.0"}},
		{StuckCounterOne, [2]string{"1", "1"}, [2]string{"1000.0", "2000.0"}, [2]string{"1000.0", "1000.0"}, [2]string{"2.0", "2.0"}},
		{DoubleCount, [2]string{"200", "400"}, [2]string{"1000.0", "2000.0"}, [2]string{"1000.0", "1000.0"}, [2]string{"2.0", "2.0"}},
		{CounterReset, [2]string{"100", "0"}, [2]string{"1000", "0"}, [2]string{"1000", "1001"}, [2]string{"2.0", "2.0"}},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			_, _, url := serve(t, test.fault)
			for n := range 2 {
				got := scrape(t, url)
				for _, series := range []string{
					"prefix_cache_hits_total", "external_prefix_cache_hits_total",
					"prompt_tokens_cached_total", `prompt_tokens_cached_by_source_total{source="device"}`,
					`prompt_tokens_by_source_total{source="external_kv_transfer"}`, `prompt_tokens_by_source_total{source="local_cache_hit"}`,
				} {
					require.Equal(t, test.hits[n], got[series], "%s in scrape %d", series, n)
				}
				require.Equal(t, test.queries[n], got["prefix_cache_queries_total"])
				require.Equal(t, test.queries[n], got[`prompt_tokens_by_source_total{source="local_compute"}`])
				require.Equal(t, test.start[n], got["process_start_time_seconds"])
				require.Equal(t, test.gauge[n], got["num_requests_running"])
				require.Equal(t, "1.5e+09", got["prefix_cache_hits_created"])
			}
		})
	}
}

func TestCountersAreHealthyAgainAfterClear(t *testing.T) {
	_, i, url := serve(t, StuckCounter)
	scrape(t, url)
	i.Clear()
	require.Equal(t, "200.0", scrape(t, url)["prefix_cache_hits_total"])
	require.NoError(t, i.Plant(StuckCounter))
	scrape(t, url)
	require.Equal(t, "300", scrape(t, url)["prefix_cache_hits_total"], "frozen at the first value since it was planted")
}

func TestOtherEncodingsAreNotAskedFor(t *testing.T) {
	_, _, url := serve(t, StuckCounter)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	require.NoError(t, err)
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Empty(t, response.Header.Get("Content-Encoding"))
}
