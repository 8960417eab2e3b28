package harness

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/paced"
)

// What the paced server does and is asked for: the figures against which other
// clients are measured, too (docs/performance.md).
const (
	pacedTTFT   = 50 * time.Millisecond
	pacedITL    = 5 * time.Millisecond
	pacedInput  = 128
	pacedOutput = 32
	pacedRounds = 20   // requests for each stream
	pacedMost   = 5120 // requests of a sample at most
)

// A ClientCost is the client at one number of streams, against a server in
// another process whose times are known.
type ClientCost struct {
	client *openai.Client
	server *paced.Process
	load   paced.Load
	seen   []paced.Seen
	truth  []paced.Truth
}

// EachLoad runs body at each number of streams as a sub-benchmark streams=…, on
// a server in a process of its own.
func EachLoad(b *testing.B, streams []int, body func(*testing.B, *ClientCost)) {
	current.measured = true
	var server *paced.Process
	b.Cleanup(func() {
		if server != nil {
			if err := server.Stop(); err != nil {
				b.Error(err)
			}
		}
	})
	for _, n := range streams {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			b.StopTimer()
			if server == nil {
				var err error
				if server, err = paced.Start(paced.Config{TTFT: pacedTTFT, ITL: pacedITL}); err != nil {
					b.Fatal(err)
				}
			}
			client := openai.New(openai.Config{BaseURL: server.URL, Model: paced.Model, Concurrency: n})
			defer client.Close()
			b.StartTimer()
			body(b, &ClientCost{client: client, server: server, load: paced.Load{
				Streams: n, Requests: min(pacedRounds*n, pacedMost), InputLen: pacedInput, OutputLen: pacedOutput,
			}})
		})
	}
}

// Measure sends the load once.
func (c *ClientCost) Measure(b *testing.B) {
	b.Helper()
	b.StopTimer()
	if err := c.server.Forget(current.ctx); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
	seen, err := paced.Drive(current.ctx, c.client, c.load)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	truth, err := c.server.Truth(current.ctx)
	switch {
	case err != nil:
		b.Fatal(err)
	case seen.Failed > 0 || len(truth.Records) != seen.Requests || truth.Peak > c.load.Streams:
		b.Fatalf("%d of %d requests failed, the server answered %d and had %d in flight, want at most %d: no error of a client can be told from that",
			seen.Failed, seen.Requests, len(truth.Records), truth.Peak, c.load.Streams)
	}
	c.seen, c.truth = append(c.seen, seen), append(c.truth, truth)
	b.StartTimer()
}

// Report puts the means of the samples on the benchmark's line. Errors may be
// below 0: the server notes that a token was written after a client may have
// read it.
func (c *ClientCost) Report(b *testing.B) {
	b.Helper()
	n := float64(len(c.seen))
	sums := make(map[string]float64)
	for i, seen := range c.seen {
		sums[metric.ClientP50] += float64(seen.TTFTP50 - c.truth[i].Percentile(0.5))
		if seen.Requests >= metric.P99From {
			sums[metric.ClientP99] += float64(seen.TTFTP99 - c.truth[i].Percentile(0.99))
		}
		sums[metric.ClientCPU] += float64(seen.CPU) / float64(seen.Tokens) * 1000
		sums[metric.ClientRequests] += float64(seen.Requests) / seen.Elapsed.Seconds()
	}
	for unit, sum := range sums {
		b.ReportMetric(sum/n, unit)
	}
	b.ReportMetric(float64(c.seen[len(c.seen)-1].RSS), metric.ClientRSS)
}
