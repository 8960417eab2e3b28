package openai

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
)

// streamOf is an answer of n chunks as vLLM sends them.
func streamOf(n int) []byte {
	const event = `data: {"id":"cmpl-a212c72e45749c99","object":"text_completion","created":1796067216,"model":"tiny","choices":[{"index":0,` +
		`"text":" w1987","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[1987]}]}` + "\n\n"
	return []byte(strings.Repeat(event, n) + "data: " + finished + "\n\ndata: [DONE]\n\n")
}

// BenchmarkRead is what happens between the reads of a stream: it delays the
// stamp of a chunk that arrives meanwhile.
func BenchmarkRead(b *testing.B) {
	const chunks = 64
	stream := streamOf(chunks)
	b.SetBytes(int64(len(stream)))
	room := new(space)
	b.ReportAllocs()
	for b.Loop() {
		record(bytes.NewReader(stream), room, func() (time.Time, int) { return nominalStart, 1 }, func(time.Duration) {})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
}

// BenchmarkDecode is what happens after the stream: it delays the worker's
// next request.
func BenchmarkDecode(b *testing.B) {
	const chunks = 64
	rec := record(bytes.NewReader(streamOf(chunks)), new(space), func() (time.Time, int) { return nominalStart, 1 }, func(time.Duration) {})
	b.ReportAllocs()
	for b.Loop() {
		t := row.Timeline{}
		fill(&t, rec)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
}

// BenchmarkClient is a whole request against a server that answers at once,
// in the same process: the floor of what the client can show.
func BenchmarkClient(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		shortAnswer(w)
	}))
	defer server.Close()
	client := New(Config{BaseURL: server.URL, Concurrency: 1})
	defer client.Close()
	q := shortRequest("r")
	q.Prompt = make([]int32, 8192)
	var ttft time.Duration
	for b.Loop() {
		t := client.Do(b.Context(), q)
		first, ok := t.TTFT()
		if !ok {
			b.Fatalf("status %s: %s", t.Status, t.Err)
		}
		ttft += first
	}
	b.ReportMetric(float64(ttft.Nanoseconds())/float64(b.N), "ttft-ns")
}
