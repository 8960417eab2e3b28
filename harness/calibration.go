package harness

import (
	"context"
	"fmt"
	"math"
	"runtime/metrics"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/run"
)

// What the client is calibrated on: short answers at a high rate of chunks, so
// that a hundred of them take a second or two.
const (
	calibrationTTFT     = 10 * time.Millisecond
	calibrationITL      = 2 * time.Millisecond
	calibrationOutput   = 8
	calibrationRequests = 100 // or twice the streams, if that is more
)

// A calibration knows how wrong the client is: before the run, at the same
// concurrency, and during each cycle, by one stream beside its requests. The
// server whose times are known is a process of its own.
type calibration struct {
	server *paced.Process
	client *openai.Client // of the probe
	before time.Duration

	probe     *paced.Probe // under way
	scheduler *metrics.Float64Histogram
	during    []time.Duration
	waited    []*metrics.Float64Histogram // of the passes so far: what was added in each
	failed    error
}

// calibrate measures the client before anything else runs.
func calibrate(ctx context.Context, streams int) (*calibration, error) {
	server, err := paced.Start(paced.Config{TTFT: calibrationTTFT, ITL: calibrationITL})
	if err != nil {
		return nil, err
	}
	c := &calibration{server: server}
	client := openai.New(openai.Config{BaseURL: server.URL, Model: paced.Model, Concurrency: streams})
	defer client.Close()
	seen, err := paced.Drive(ctx, client, paced.Load{
		Streams: streams, Requests: max(calibrationRequests, 2*streams), InputLen: 64, OutputLen: calibrationOutput,
	})
	if err != nil {
		return c, fmt.Errorf("calibrating the client: %w", err)
	}
	truth, err := server.Truth(ctx)
	if err != nil {
		return c, fmt.Errorf("calibrating the client: %w", err)
	}
	c.before = max(0, seen.TTFTP99-truth.Percentile(0.99))
	c.client = openai.New(openai.Config{BaseURL: server.URL, Model: paced.Model, Concurrency: 1})
	return c, nil
}

// ensureCalibration calibrates once. A client that could not be is unknown, and
// no number and no label comes of it.
func (s *session) ensureCalibration() {
	s.calibrating.Do(func() {
		s.progress.show("calibrating the client")
		var err error
		if s.calibration, err = calibrate(s.ctx, s.inFlight()); err != nil {
			s.manifest.Notes = append(s.manifest.Notes, err.Error())
		}
	})
}

func (c *calibration) close() error {
	if c == nil {
		return nil
	}
	if c.client != nil {
		c.client.Close()
	}
	return c.server.Stop()
}

// around runs the probe while the requests of a pass run.
func (c *calibration) around(ctx context.Context, running bool) {
	switch {
	case c == nil || c.client == nil:
	case running:
		c.scheduler = schedulerLatencies()
		c.probe, c.failed = paced.StartProbe(ctx, c.server, c.client)
	case c.probe != nil:
		wrong, err := c.probe.Stop(ctx)
		c.probe = nil
		if err != nil {
			c.failed = err
			return
		}
		c.during = append(c.during, wrong...)
		c.waited = append(c.waited, added(c.scheduler, schedulerLatencies()))
	}
}

// cycle is the client's error over the passes since the last time that it was
// asked for; false where it is not known.
func (c *calibration) cycle() (run.ClientError, bool) {
	if c == nil || c.failed != nil || len(c.during) == 0 {
		return run.ClientError{}, false
	}
	e := run.ClientError{Before: c.before, During: metric.Percentile(c.during, 0.99)}
	for _, h := range c.waited {
		e.Scheduler = max(e.Scheduler, upperQuantile(h, 0.99))
	}
	c.during, c.waited = nil, nil
	return e, true
}

const schedulerMetric = "/sched/latencies:seconds"

// schedulerLatencies is how long goroutines of this process waited to run,
// since it began.
func schedulerLatencies() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: schedulerMetric}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	return sample[0].Value.Float64Histogram()
}

// added is what a histogram has more than it had.
func added(before, after *metrics.Float64Histogram) *metrics.Float64Histogram {
	if before == nil || after == nil || len(before.Counts) != len(after.Counts) {
		return nil
	}
	counts := make([]uint64, len(after.Counts))
	for i := range counts {
		counts[i] = after.Counts[i] - before.Counts[i]
	}
	return &metrics.Float64Histogram{Counts: counts, Buckets: after.Buckets}
}

// upperQuantile is the upper end of the bucket in which a quantile lies, in
// seconds made a duration; 0 without data.
func upperQuantile(h *metrics.Float64Histogram, q float64) time.Duration {
	if h == nil {
		return 0
	}
	total := uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	rank, passed := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i, n := range h.Counts {
		if passed += n; total > 0 && passed >= rank {
			end := h.Buckets[i+1]
			if math.IsInf(end, 1) {
				end = h.Buckets[i]
			}
			return time.Duration(end * float64(time.Second))
		}
	}
	return 0
}
