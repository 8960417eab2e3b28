package fault

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// hitCounters are the series of the engine that count hits, by how their
// line begins. Names as observed on vLLM 0.32.0.
var hitCounters = []string{
	"vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total",
	"vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_cached_by_source_total",
}

// hitSources are the values of the label source of
// vllm:prompt_tokens_by_source_total that are hits.
var hitSources = []string{`source="local_cache_hit"`, `source="external_kv_transfer"`}

const startTime = "process_start_time_seconds"

// counters is what the counter faults remember of earlier scrapes.
type counters struct {
	first    map[string]float64 // by series: the value in the first scrape
	last     map[string]float64 // the engine's counters in the last scrape
	base     map[string]float64 // their values when they last started anew
	restarts int
	quiet    int  // scrapes that found what the one before did
	moved    bool // since the last restart
}

// quietScrapes of one engine in a row come between two passes, when the suite
// has seen that all is idle.
const quietScrapes = 4

// metrics shows the engine's counters as planted.
func (i *Injector) metrics(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !i.Has(StuckCounter) && !i.Has(StuckCounterZero) && !i.Has(StuckCounterOne) && !i.Has(DoubleCount) && !i.Has(CounterReset) && !i.Has(Restart) {
		next.ServeHTTP(w, r)
		return
	}
	r = r.Clone(r.Context())
	r.Header.Del("Accept") // the text format, as it is
	r.Header.Del("Accept-Encoding")
	page := &recorder{header: w.Header(), code: http.StatusOK}
	next.ServeHTTP(page, r)
	w.Header().Del("Content-Length")
	w.WriteHeader(page.code)
	_, _ = w.Write(i.falsify(page.body.Bytes()))
}

// falsify rewrites the values of a metrics page.
func (i *Injector) falsify(page []byte) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.counters.first == nil {
		i.counters.first = map[string]float64{}
	}
	i.counters.scrape(page, i.planted[Restart])
	var out bytes.Buffer
	for line := range strings.Lines(string(page)) {
		out.WriteString(i.falsifyLine(line))
	}
	return out.Bytes()
}

// scrape notes the engine's counters. Where they moved since the last time, a
// CounterReset lets them start anew from here; a Restart, where they moved and
// then stood still for some scrapes.
func (c *counters) scrape(page []byte, whenQuiet bool) {
	now := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		if series, value, ok := sample(line); ok && strings.HasPrefix(series, "vllm:") && counts(series) {
			now[series] = value
		}
	}
	same := maps.Equal(c.last, now)
	c.quiet++
	if !same {
		c.quiet, c.moved = 0, c.last != nil
	}
	if c.last != nil && (!whenQuiet && !same || whenQuiet && c.moved && c.quiet >= quietScrapes) {
		c.base, c.moved = now, false
		c.restarts++
	}
	c.last = now
}

// sample splits a line of a metrics page into its series and its value.
func sample(line string) (series string, value float64, ok bool) {
	at := strings.LastIndexByte(strings.TrimRight(line, "\n"), ' ')
	if strings.HasPrefix(line, "#") || at < 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
	return line[:at], value, err == nil
}

func (i *Injector) falsifyLine(line string) string {
	series, value, ok := sample(line)
	if !ok {
		return line
	}
	first, seen := i.counters.first[series]
	if !seen {
		first = value
		i.counters.first[series] = value
	}
	hits, starts := countsHits(series), i.planted[CounterReset] || i.planted[Restart]
	switch {
	case i.planted[StuckCounter] && hits:
		value = first
	case i.planted[StuckCounterZero] && hits:
		value = 0
	case i.planted[StuckCounterOne] && hits:
		value = 1
	case i.planted[DoubleCount] && hits:
		value *= 2
	case starts && strings.HasPrefix(series, startTime):
		value += float64(i.counters.restarts)
	case starts && strings.HasPrefix(series, "vllm:") && counts(series):
		value -= i.counters.base[series]
	default:
		return line
	}
	return series + " " + strconv.FormatFloat(value, 'g', -1, 64) + "\n"
}

func countsHits(series string) bool {
	name, labels, _ := strings.Cut(series, "{")
	for _, c := range hitCounters {
		if name == c {
			return true
		}
	}
	for _, s := range hitSources {
		if name == "vllm:prompt_tokens_by_source_total" && strings.Contains(labels, s) {
			return true
		}
	}
	return false
}

// counts says whether a series only ever grows, by the suffix of its name.
func counts(series string) bool {
	name, _, _ := strings.Cut(series, "{")
	for _, suffix := range []string{"_total", "_bucket", "_sum", "_count"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// A recorder keeps an answer back.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
