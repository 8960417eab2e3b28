package paced

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/load"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
)

// A Load is a closed loop of equal requests.
type Load struct {
	Streams   int // requests in flight
	Requests  int
	InputLen  int // tokens
	OutputLen int // tokens
}

// A Seen is what a client reports of a load, and what that cost this process.
type Seen struct {
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	TTFTP50  time.Duration `json:"ttft_p50_ns"`
	TTFTP99  time.Duration `json:"ttft_p99_ns"`
	ITLP50   time.Duration `json:"itl_p50_ns"` // 0: too many chunks came together for it to mean anything
	ITLP99   time.Duration `json:"itl_p99_ns"` // likewise
	Elapsed  time.Duration `json:"elapsed_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of this process, over the load
	RSS      int64         `json:"rss_bytes"`
	Tokens   int           `json:"tokens"`
}

// Drive sends a load through a client and says what that client saw. Prompts
// are ids that no tokenizer has a say in, all different.
func Drive(ctx context.Context, client row.Client, l Load) (Seen, error) {
	requests := make([]row.Request, l.Requests)
	for i := range requests {
		prompt := make([]int32, l.InputLen)
		for k := range prompt {
			prompt[k] = int32(100 + (i*31+k*7)%3000)
		}
		requests[i] = row.Request{ID: fmt.Sprintf("client-%d", i), Prompt: prompt, MaxTokens: l.OutputLen, IgnoreEOS: true}
	}
	before, err := usage()
	if err != nil {
		return Seen{}, err
	}
	timelines, report := load.Closed(ctx, client, requests, l.Streams)
	after, err := usage()
	if err := errors.Join(ctx.Err(), err); err != nil {
		return Seen{}, err
	}
	seen := Seen{Requests: len(timelines), Elapsed: report.End.Sub(report.Start), CPU: after.cpu - before.cpu, RSS: after.rss}
	var ttft []time.Duration
	var broken error
	for _, t := range timelines {
		d, ok := t.TTFT()
		if t.Status != row.OK || !ok {
			seen.Failed++
			broken = fmt.Errorf("request %s: %s: %s", t.ID, t.Status, t.Err)
			continue
		}
		ttft = append(ttft, d)
		seen.Tokens += len(t.Tokens)
	}
	if len(ttft) == 0 {
		return seen, fmt.Errorf("driving %d requests, %d at a time: none was answered: %w", l.Requests, l.Streams, broken)
	}
	seen.TTFTP50, seen.TTFTP99 = metric.Percentile(ttft, 0.5), metric.Percentile(ttft, 0.99)
	if itl, valid := metric.InterTokenLatencies(timelines); valid {
		seen.ITLP50, seen.ITLP99 = time.Duration(metric.Percentile(itl, 0.5)), time.Duration(metric.Percentile(itl, 0.99))
	}
	return seen, nil
}

// A spent is what this process used so far.
type spent struct {
	cpu time.Duration
	rss int64 // bytes, at its peak
}

func usage() (spent, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return spent{}, fmt.Errorf("reading what this process used: %w", err)
	}
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return spent{cpu, r.Maxrss << 10}, nil
}

// Percentile is a percentile of the TTFT that the server really had.
func (t Truth) Percentile(p float64) time.Duration {
	ttft := make([]time.Duration, len(t.Records))
	for i, r := range t.Records {
		ttft[i] = r.TTFT
	}
	return metric.Percentile(ttft, p)
}
