// Package metric turns what a cycle measured into the numbers on its benchmark
// line: unit names, percentiles, values that are safe to print, names that Go
// and benchstat read back unchanged.
//
//	var cold, warm metric.Pass
//	cold.Add(timelines, elapsed, hitTokens, promptTokens)
//	// … warm likewise …
//	values, err := metric.Cycle(cold, warm, matches, compared)
//	for _, v := range values {
//		b.ReportMetric(v.Value, v.Unit) // cold-p50-ttft-ns, hit-%, …
//	}
//
// It knows no testing package. Times are in nanoseconds: benchstat turns a
// unit with "ns" into seconds and scales it.
package metric

import "strings"

// The phases of a cycle, as the units name them.
const (
	Cold = "cold"
	Warm = "warm"
)

// What is measured in each phase: the unit without its phase.
const (
	MeanTTFT     = "mean-ttft-ns"
	P50TTFT      = "p50-ttft-ns"
	P99TTFT      = "p99-ttft-ns"
	P50ITL       = "p50-itl-ns"
	P50E2E       = "p50-e2e-ns"
	Requests     = "req/s"
	PromptTokens = "in-tok/s"
)

// What is measured beside it in each phase whose requests have a schedule.
const (
	MeanScheduledTTFT = "mean-scheduled-ttft-ns"
	P50ScheduledTTFT  = "p50-scheduled-ttft-ns"
	P99ScheduledTTFT  = "p99-scheduled-ttft-ns"
	P50ScheduledE2E   = "p50-scheduled-e2e-ns"
	MeanQueue         = "mean-queue-ns"
	P50Late           = "p50-late-ns"
	MaxLate           = "max-late-ns"
	Offered           = "offered-req/s"
)

// What is measured over a cycle.
const (
	ColdHit = "cold-hit-%"
	Hit     = "hit-%"
	L1Hit   = "l1-hit-%"
	L2Hit   = "l2-hit-%"
	Match   = "match-%"
	Upload  = "upload-ns"
)

// What is measured of a break-even.
const (
	BreakEven         = "break-even-tok"
	RooflineBreakEven = "roofline-break-even-tok"
	RecomputeToken    = "recompute-ns/tok"
	LoadToken         = "load-ns/tok"
	ColdTax           = "cold-tax-%"
)

// What is measured of the client itself.
const (
	ClientP50      = "client-p50-ns"
	ClientP99      = "client-p99-ns"
	ClientCPU      = "client-cpu-ns/ktok"
	ClientRequests = "client-req/s"
	ClientRSS      = "client-rss-bytes"
)

// In is the unit of a phase: In(Cold, P50TTFT) is "cold-p50-ttft-ns".
func In(phase, unit string) string { return phase + "-" + unit }

// The directions of a unit, as benchstat spells them.
const (
	Lower  = "lower"
	Higher = "higher"
)

// A Unit describes one unit of the benchmark lines.
type Unit struct {
	Name   string
	Better string // Lower or Higher
	About  string // what the number is

	// Fixed says that on a stack that computes the same bits every time the
	// number depends on the plan alone. The hits of a cold pass do not (which of
	// two requests in flight is first is free), nor do matches (a row may be
	// lossy, and its answers depend on the content).
	Fixed bool
}

// Units are all units, in the order in which they are described.
func Units() []Unit {
	var units []Unit
	for _, phase := range []string{Cold, Warm} {
		for _, u := range []Unit{
			{Name: MeanTTFT, Better: Lower, About: "mean time to first token, from just before the request is written"},
			{Name: P50TTFT, Better: Lower, About: "median time to first token"},
			{Name: P99TTFT, Better: Lower, About: "99th percentile of the time to first token, from 100 requests on"},
			{Name: P50ITL, Better: Lower, About: "median time between tokens of a request"},
			{Name: P50E2E, Better: Lower, About: "median time to the last token"},
			{Name: Requests, Better: Higher, About: "requests that ended properly, per second of the pass"},
			{Name: PromptTokens, Better: Higher, About: "prompt tokens of those requests, cached ones included, per second of the pass"},
			{Name: MeanScheduledTTFT, Better: Lower, About: "mean time to first token, from when the schedule had the request due"},
			{Name: P50ScheduledTTFT, Better: Lower, About: "median time to first token, from when the schedule had the request due"},
			{Name: P99ScheduledTTFT, Better: Lower, About: "99th percentile of the time to first token, from when the schedule had the request due, from 100 requests on"},
			{Name: P50ScheduledE2E, Better: Lower, About: "median time to the last token, from when the schedule had the request due"},
			{Name: MeanQueue, Better: Lower, About: "mean time that a request was due and waited at the client until it was sent"},
			{Name: P50Late, Better: Lower, About: "median lateness of the client itself: from due, with a slot, to sent"},
			{Name: MaxLate, Better: Lower, About: "greatest lateness of the client itself"},
			{Name: Offered, Better: Higher, About: "requests per second that the schedule asked for"},
		} {
			u.Name, u.About = In(phase, u.Name), phase+" pass: "+u.About
			units = append(units, u)
		}
	}
	units = append(units,
		Unit{Name: ColdHit, Better: Higher, About: "share of the cold pass's prompt tokens that the plan itself repeats and the cache returned"},
		Unit{Name: Hit, Better: Higher, About: "share of the warm pass's prompt tokens that came out of the cache", Fixed: true},
		Unit{Name: L1Hit, Better: Higher, About: "share of the warm pass's prompt tokens that the cache server found in memory"},
		Unit{Name: L2Hit, Better: Higher, About: "share of the warm pass's prompt tokens that the cache server found on disk"},
		Unit{Name: Match, Better: Higher, About: "share of the requests whose warm output is the cold output, token by token"},
		Unit{Name: Upload, Better: Lower, About: "time to store the documents of a plan until all can be read, in rows that store them apart from requests"},
		Unit{Name: BreakEven, Better: Lower, About: "tokens from which on a hit is faster than computing them"},
		Unit{Name: RooflineBreakEven, Better: Lower, About: "the same if loading cost nothing but moving the bytes at this machine's rate"},
		Unit{Name: RecomputeToken, Better: Lower, About: "time to compute a token of a prompt, without attention's square"},
		Unit{Name: LoadToken, Better: Lower, About: "time to load a token that hits"},
		Unit{Name: ColdTax, Better: Lower, About: "how much longer the row takes to the first token of a prompt that it does not have than computing it takes"},
		Unit{Name: ClientP50, Better: Lower, About: "the median of TTFT that the client reports less the one that the server had"},
		Unit{Name: ClientP99, Better: Lower, About: "the 99th percentile of TTFT that the client reports less the one that the server had, from 100 requests on"},
		Unit{Name: ClientCPU, Better: Lower, About: "CPU time of the client for a thousand tokens"},
		Unit{Name: ClientRequests, Better: Higher, About: "requests per second of the client"},
		Unit{Name: ClientRSS, Better: Lower, About: "peak resident memory of the process that the client is in"},
	)
	return append(units, cacheServerUnits()...)
}

// An Assumption is what benchstat may assume about repeated measurements.
type Assumption string

// The assumptions.
const (
	Nothing Assumption = "nothing" // they vary
	Exact   Assumption = "exact"   // fixed units do not vary; a difference is a warning of benchstat
)

// UnitLines are the lines that tell benchstat which direction is better, one
// for each unit; it matches exact names only. With Exact the fixed units
// are declared exact too: right only where the stack makes it true.
func UnitLines(assume Assumption) []string {
	var lines []string
	for _, u := range Units() {
		fields := []string{"Unit", u.Name, "better=" + u.Better}
		if assume == Exact && u.Fixed {
			fields = append(fields, "assume=exact")
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return lines
}
