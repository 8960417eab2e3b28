package harness

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/load"
)

// Values of -rate that are no numbers.
const (
	closedLoop = "inf" // as in `vllm bench serve`
	recorded   = "trace"
)

// arrivals is what -rate, -burstiness and -timescale come to.
type arrivals struct {
	rate       float64 // requests per second; 0: a closed loop, or a replay
	burstiness float64
	seed       uint64
	replay     bool    // of the workload's own arrivals
	speed      float64 // of the replay
}

type complaint func(flag string, value any, format string, args ...any)

// parseArrivals checks -rate, -burstiness and -timescale.
func (s *Settings) parseArrivals(wrong complaint) arrivals {
	a := arrivals{burstiness: s.Burstiness, seed: s.Seed, speed: s.TimeScale}
	if !(s.Burstiness > 0) {
		wrong("burstiness", s.Burstiness, "want a number above 0: 1 is Poisson, less comes in bursts, inf is constant")
	}
	switch {
	case !(s.TimeScale > 0) || math.IsInf(s.TimeScale, 0):
		wrong("timescale", s.TimeScale, "want a finite number above 0: 10 replays a trace ten times as fast")
	case s.TimeScale != 1 && s.Rate != recorded:
		wrong("timescale", s.TimeScale, "it is for the arrivals of a trace, which -rate=trace asks for")
	}
	switch s.Rate {
	case closedLoop:
		return a
	case recorded:
		a.replay = true
		if s.Burstiness != 1 {
			wrong("burstiness", s.Burstiness, "with -rate=trace the arrivals are those of the trace")
		}
		return a
	}
	rate, err := strconv.ParseFloat(s.Rate, 64)
	if err != nil || math.IsNaN(rate) || math.IsInf(rate, 0) || rate <= 0 {
		wrong("rate", s.Rate, "want inf (a closed loop), trace (the arrivals of the trace), or a finite number of requests per second above 0")
		return a
	}
	a.rate = rate
	return a
}

// parseWindow reads -window, FROM:TO in Go's durations, either of which may be
// left out.
func parseWindow(text string) (w fixtures.Window, err error) {
	if text == "" {
		return w, nil
	}
	const form = "want FROM:TO as durations of the trace, e.g. 30s:2m, :1m or 10m:"
	from, to, found := strings.Cut(text, ":")
	if !found {
		return w, fmt.Errorf("%s", form)
	}
	for _, part := range []struct {
		text string
		to   *time.Duration
	}{{from, &w.From}, {to, &w.To}} {
		if part.text == "" {
			continue
		}
		if *part.to, err = time.ParseDuration(part.text); err != nil {
			return w, fmt.Errorf("%w; %s", err, form)
		}
	}
	if w.From < 0 || to != "" && w.To <= w.From {
		return w, fmt.Errorf("it is empty; %s", form)
	}
	return w, nil
}

// checkTraces refuses settings of traces where no workload is one, and -rate=trace
// for workloads without arrivals, which "all" leaves out.
func (s *Settings) checkTraces(sel *selection, wrong complaint) {
	timed := slices.DeleteFunc(slices.Clone(sel.workloads), func(w fixtures.Workload) bool { return !w.Timed })
	for _, f := range []struct {
		name  string
		value any
		given bool
	}{{"lengthscale", s.LengthScale, s.LengthScale != 0}, {"window", s.Window, s.Window != ""}, {"rate", s.Rate, s.Rate == recorded}} {
		if f.given && len(timed) == 0 {
			wrong(f.name, f.value, "it is for traces, and none of -workload=%s is one", s.Workload)
		}
	}
	if !sel.arrivals.replay {
		return
	}
	if s.Loader != internalLoader {
		wrong("rate", s.Rate, "-loader=%s makes its own arrivals: want inf or a number", s.Loader)
	}
	for _, w := range sel.workloads {
		switch {
		case w.Timed:
		case s.Workload == "all":
			sel.inapplicable = append(sel.inapplicable, fmt.Errorf("workload %s has no arrivals of its own, which -rate=trace asks for", w.Name))
		default:
			wrong("rate", s.Rate, "workload %s has no arrivals of its own", w.Name)
		}
	}
	sel.workloads = timed
}

// traceLine is the value of the config line "trace:": the part and the scale.
func (s *Settings) traceLine() string {
	var changed []string
	if s.Window != "" {
		changed = append(changed, "window="+s.Window)
	}
	if s.LengthScale != 0 {
		changed = append(changed, fmt.Sprintf("lengthscale=%v", s.LengthScale))
	}
	if changed == nil {
		return "whole"
	}
	return strings.Join(changed, ",")
}

// open says that requests have a schedule.
func (a arrivals) open() bool { return a.replay || a.rate > 0 }

// schedule is what run.Config takes; nil for a closed loop.
func (a arrivals) schedule() func([]fixtures.Request) load.Schedule {
	switch {
	case a.replay:
		return func(requests []fixtures.Request) load.Schedule {
			at := make([]time.Duration, len(requests))
			for i, r := range requests {
				at[i] = r.Arrival
			}
			return load.Replay(at, a.speed)
		}
	case a.rate > 0:
		process := load.Arrivals{Rate: a.rate, Burstiness: a.burstiness, Seed: a.seed}
		return func(requests []fixtures.Request) load.Schedule { return process.Schedule(len(requests)) }
	}
	return nil
}

// takes is the time from the first request being due to the last.
func (a arrivals) takes(requests []fixtures.Request) time.Duration {
	if !a.open() || len(requests) == 0 {
		return 0
	}
	return a.schedule()(requests)[len(requests)-1]
}

// String is the value of the config line "rate:".
func (a arrivals) String() string {
	switch {
	case a.replay && a.speed == 1:
		return recorded
	case a.replay:
		return fmt.Sprintf("%s,timescale=%v", recorded, a.speed)
	case a.rate == 0:
		return "closed-loop"
	case a.burstiness == 1:
		return fmt.Sprint(a.rate)
	default:
		return fmt.Sprintf("%v,burstiness=%v", a.rate, a.burstiness)
	}
}
