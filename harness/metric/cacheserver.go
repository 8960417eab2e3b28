package metric

import (
	"slices"
	"time"
)

// What is measured of a cache server by itself. Times have a p50, and a p99
// from 100 on: p50-store-ns, cold-p50-lookup-ns.
const (
	Lookup       = "lookup-ns"
	Store        = "store-ns"
	StoreVisible = "store-visible-ns"
	Retrieve     = "retrieve-ns"
	StoreRate    = "store-GB/s"
	RetrieveRate = "retrieve-GB/s"
	Operations   = "op/s"
)

// P50 and P99 are the units of percentiles of a time: P50("store-ns") is
// "p50-store-ns", and the phase stays in front.
func P50(unit string) string { return percentileUnit("p50-", unit) }

// P99 is like P50.
func P99(unit string) string { return percentileUnit("p99-", unit) }

func percentileUnit(percentile, unit string) string {
	for _, phase := range []string{Cold, Warm} {
		if rest, ok := cutPhase(unit, phase); ok {
			return In(phase, percentile+rest)
		}
	}
	return percentile + unit
}

func cutPhase(unit, phase string) (string, bool) {
	prefix := phase + "-"
	if len(unit) > len(prefix) && unit[:len(prefix)] == prefix {
		return unit[len(prefix):], true
	}
	return unit, false
}

// cacheServerTimes are the times in the order of a line.
var cacheServerTimes = []struct{ unit, about string }{
	{In(Cold, Lookup), "to look up a prompt that the cache server does not have"},
	{Store, "to store a prompt's whole chunks, from the call to its reply"},
	{StoreVisible, "from the start of a store until a lookup finds all of it"},
	{In(Warm, Lookup), "to look up a prompt that it has"},
	{Retrieve, "to bring a prompt's chunks back"},
}

// A CacheServer is what runs against a cache server measured.
type CacheServer struct {
	Took              map[string][]time.Duration // by unit
	Stored, Retrieved []float64                  // bytes a second, by run
	Rate              []float64                  // operations a second, by run
	Busy              time.Duration              // with at least one operation under way
	Hit, Asked        int                        // tokens of warm lookups
	Right, Compared   int                        // comparisons of bytes
}

// Metrics are the numbers on its line. ns/op is the time in which operations
// were under way, for each run: what lies between them is the benchmark's own.
func (c CacheServer) Metrics() ([]Metric, error) {
	var l list
	if n := len(c.Rate); n > 0 {
		l.add("ns/op", float64(c.Busy)/float64(n))
		l.add(Operations, Mean(c.Rate))
	}
	for _, t := range cacheServerTimes {
		took := c.Took[t.unit]
		if len(took) == 0 {
			continue
		}
		l.add(P50(t.unit), float64(Percentile(took, 0.5)))
		if len(took) >= P99From {
			l.add(P99(t.unit), float64(Percentile(took, 0.99)))
		}
	}
	for _, r := range []struct {
		unit  string
		rates []float64
	}{{StoreRate, c.Stored}, {RetrieveRate, c.Retrieved}} {
		if r.rates = slices.DeleteFunc(slices.Clone(r.rates), func(v float64) bool { return v == 0 }); len(r.rates) > 0 {
			l.add(r.unit, Mean(r.rates)/1e9)
		}
	}
	l.percent(Hit, c.Hit, c.Asked)
	l.percent(Match, c.Right, c.Compared)
	return l.metrics, l.err
}

// cacheServerUnits describe them.
func cacheServerUnits() []Unit {
	var units []Unit
	for _, t := range cacheServerTimes {
		units = append(units,
			Unit{Name: P50(t.unit), Better: Lower, About: "cache server: median time " + t.about},
			Unit{Name: P99(t.unit), Better: Lower, About: "cache server: 99th percentile of the time " + t.about + ", from 100 on"})
	}
	return append(units,
		Unit{Name: StoreRate, Better: Higher, About: "cache server: bytes stored by all clients, per second with a store under way"},
		Unit{Name: RetrieveRate, Better: Higher, About: "cache server: bytes retrieved by all clients, per second with a retrieve under way"},
		Unit{Name: Operations, Better: Higher, About: "cache server: lookups, stores and retrieves, per second with one under way"},
	)
}
