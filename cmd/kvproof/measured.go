package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/vllmbench"
)

// A measured is one run of one client. Errors are what it reported less what
// the server did, by percentile.
type measured struct {
	Client   string   `json:"client"`
	Streams  int      `json:"streams"`
	Requests int      `json:"requests"`
	Failed   int      `json:"failed"`
	P50      float64  `json:"ttft_p50_error_ms"`
	P99      float64  `json:"ttft_p99_error_ms"`
	TruthP50 float64  `json:"truth_p50_ms"`
	TruthP99 float64  `json:"truth_p99_ms"`
	ITLP50   *float64 `json:"itl_p50_ms"` // nil: too many chunks came together for it to mean anything
	PerSec   float64  `json:"req_per_s"`  // by the server
	CPU      float64  `json:"cpu_s_per_1000_requests"`
	CPUAll   float64  `json:"cpu_s_per_1000_requests_with_start"`
	Start    float64  `json:"first_request_after_s"`
	RSS      float64  `json:"peak_rss_mb"`
	Peak     int      `json:"peak_in_flight"`
}

func (m measured) String() string {
	return fmt.Sprintf("%4d streams %-16s TTFT error p50 %+.2f ms p99 %+.1f ms, %.0f req/s, %.2f CPU-s per 1000 requests", m.Streams, m.Client, m.P50, m.P99, m.PerSec, m.CPU)
}

// measure runs a client once.
func (c *comparison) measure(ctx context.Context, client string, streams, number int) (measured, error) {
	m := measured{Client: client, Streams: streams}
	if err := c.server.Forget(ctx); err != nil {
		return m, err
	}
	args, env, result := c.command(client, streams, number)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return m, err
	}
	before, err := c.awaitFirst(ctx, cmd.Process.Pid)
	m.Start = time.Since(began).Seconds()
	if ended := cmd.Wait(); ended != nil || err != nil {
		return m, errors.Join(ended, err, fmt.Errorf("it said: %s", lastLines(stderr.String()+stdout.String())))
	}
	truth, err := c.server.Truth(ctx)
	if err != nil {
		return m, err
	}
	if result == "" {
		err = m.ours(stdout.Bytes())
	} else {
		err = m.upstreams(result)
	}
	if err != nil || len(truth.Records) == 0 {
		return m, errors.Join(err, fmt.Errorf("the server answered %d requests", len(truth.Records)))
	}
	m.TruthP50, m.TruthP99 = inMilliseconds(truth.Percentile(0.5)), inMilliseconds(truth.Percentile(0.99))
	m.P50, m.P99 = m.P50-m.TruthP50, m.P99-m.TruthP99
	m.PerSec, m.Peak = float64(len(truth.Records))/truth.Elapsed.Seconds(), truth.Peak
	all := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	m.CPUAll, m.CPU = 1000*all/float64(m.Requests), 1000*(all-before.Seconds())/float64(m.Requests)
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.RSS = float64(used.Maxrss<<10) / 1e6
	}
	return m, nil
}

// awaitFirst waits for the first request of a client, or for its end, and says
// how much CPU time the client had used by then.
func (c *comparison) awaitFirst(ctx context.Context, pid int) (time.Duration, error) {
	for {
		begun, err := c.server.Begun(ctx)
		if err != nil {
			return 0, err
		}
		used, alive := cpuOf(pid)
		if begun || !alive {
			return used, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// cpuOf is the user and system time of a process that has not been waited for,
// from /proc/PID/stat (proc(5)): fields 14 and 15 in ticks of 10 ms, and 16 and
// 17 of the children that it waited for. Not alive: it has ended.
func cpuOf(pid int) (used time.Duration, alive bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have blanks
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, false
	}
	for _, field := range fields[11:15] {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used, fields[0] != "Z"
}

// ours reads what this project's client printed.
func (m *measured) ours(text []byte) error {
	var seen paced.Seen
	if err := json.Unmarshal(text, &seen); err != nil {
		return fmt.Errorf("reading what the client reported: %w", err)
	}
	m.Requests, m.Failed = seen.Requests, seen.Failed
	m.P50, m.P99 = inMilliseconds(seen.TTFTP50), inMilliseconds(seen.TTFTP99)
	if seen.ITLP50 > 0 {
		itl := inMilliseconds(seen.ITLP50)
		m.ITLP50 = &itl
	}
	return nil
}

// upstreams reads what vllm bench serve wrote, and takes the percentiles of its
// own samples in the way of all others here.
func (m *measured) upstreams(path string) error {
	result, err := vllmbench.ReadFile(path)
	if err != nil {
		return err
	}
	if len(result.TTFTs) == 0 {
		return fmt.Errorf("%s has no ttfts", path)
	}
	m.Requests, m.Failed = *result.Completed+result.Failed, result.Failed
	m.P50, m.P99 = 1000*metric.Percentile(result.TTFTs, 0.5), 1000*metric.Percentile(result.TTFTs, 0.99)
	if itl := slices.Concat(result.ITLs...); len(itl) > 0 {
		p50 := 1000 * metric.Percentile(itl, 0.5)
		m.ITLP50 = &p50
	}
	return nil
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func lastLines(text string) string { return text[max(0, len(text)-1500):] }

// table is the median of the runs, with the least and the greatest.
func table(w io.Writer, all []measured, clients []string) {
	say(w, "| streams | client | TTFT p50 error, ms | TTFT p99 error, ms | ITL p50, ms | req/s | CPU-s per 1000 requests | with its start | first request after, s | peak RSS, MB |\n|---|---|---|---|---|---|---|---|---|---|\n")
	var levels []int
	for _, m := range all {
		if !slices.Contains(levels, m.Streams) {
			levels = append(levels, m.Streams)
		}
	}
	for _, streams := range levels {
		for _, client := range clients {
			known := func(format string, of func(measured) *float64) string {
				var values []float64
				runs := 0
				for _, m := range all {
					if m.Streams != streams || m.Client != client {
						continue
					}
					runs++
					if v := of(m); v != nil {
						values = append(values, *v)
					}
				}
				if len(values) == 0 {
					return "-"
				}
				text := fmt.Sprintf(format+" ("+format+" to "+format+")", metric.Percentile(values, 0.5), slices.Min(values), slices.Max(values))
				if len(values) < runs {
					text += fmt.Sprintf(", %d of %d runs", len(values), runs)
				}
				return text
			}
			column := func(format string, of func(measured) float64) string {
				return known(format, func(m measured) *float64 { v := of(m); return &v })
			}
			say(w, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", streams, client,
				column("%+.2f", func(m measured) float64 { return m.P50 }), column("%+.1f", func(m measured) float64 { return m.P99 }),
				known("%.1f", func(m measured) *float64 { return m.ITLP50 }), column("%.0f", func(m measured) float64 { return m.PerSec }),
				column("%.2f", func(m measured) float64 { return m.CPU }), column("%.2f", func(m measured) float64 { return m.CPUAll }),
				column("%.2f", func(m measured) float64 { return m.Start }), column("%.0f", func(m measured) float64 { return m.RSS }))
		}
	}
}
