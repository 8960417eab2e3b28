package cachebench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
)

// Title and width of the summary are upstream's, as are the sections config,
// results and the four latencies with their keys.
const (
	title = "Server Bench Result"
	width = 64
)

// A Section is a part of the summary.
type Section struct {
	ID, Title string
	Entries   []Entry
}

// An Entry is one line: a key for programs, a label for people.
type Entry struct {
	Key, Label string
	Value      any
}

// Summary is a run's summary. One that is not valid has no latency and no
// throughput, but says why.
func (r *Result) Summary() []Section {
	config := Section{"config", "Configuration", []Entry{
		{"rpc_url", "RPC URL", r.Server.RPC},
		{"mode", "Mode", mode(r.Config.GPU)},
		{"transfer_mode", "Transfer mode", string(r.Config.Transfer)},
		{"num_tokens", "Tokens / request", r.Config.Tokens - 1},
		{"interval", "Interval (s)", r.Config.Interval.Seconds()},
		{"sent_tokens", "Tokens sent / request", r.Config.Tokens},
		{"resolved_transfer_mode", "Transfer mode, resolved", string(r.Transfer)},
		{"kvcache_shape_spec", "KV shape", r.Config.Shape.String()},
		{"chunk_size", "Server's chunk (tokens)", r.Server.Chunk},
		{"operation", "Operation", r.Config.Op.String()},
		{"clients", "Clients", r.Config.Clients},
		{"workers", "Workers / client", r.Config.Workers},
		{"cache_salt", "Cache salt", r.Config.Salt},
		{"dialect", "Dialect", r.Server.Dialect.Version},
		{"server_version", "Server's version", r.Server.Version},
	}}
	compared := r.ChecksumOK + r.ChecksumBad
	passRate := 0.0
	if compared > 0 {
		passRate = math.Round(10000*float64(r.ChecksumOK)/float64(compared)) / 100
	}
	results := Section{"results", "Results", []Entry{
		{"total_requests", "Total requests", r.Requests},
		{"checksum_ok", "Checksum OK", r.ChecksumOK},
		{"checksum_fail", "Checksum FAIL", r.ChecksumBad},
		{"pass_rate", "Pass rate (%)", passRate},
		{"server_checksums", "Server's checksums compared", r.ServerSums},
		{"valid", "Valid", r.Valid()},
		{"server_reuse_safe", "Server can be used again", len(r.Unsafe) == 0},
	}}
	sections := []Section{config, results}
	if r.Valid() {
		sections = append(sections, r.latencies()...)
		sections = append(sections, r.throughput())
	}
	calls := Section{"calls", "Calls (attempted/ok/failed/timed out)", nil}
	for _, name := range []string{"lookup", "store", "retrieve", "free_lookup_locks", "end_session", "checksum"} {
		if c, made := r.Calls[name]; made {
			calls.Entries = append(calls.Entries, Entry{"calls_" + name, name, c})
		}
	}
	return append(sections, calls)
}

func mode(gpu bool) string {
	if gpu {
		return "gpu"
	}
	return "cpu"
}

// latencies are the sections of what was timed, in ms.
func (r *Result) latencies() []Section {
	titles := map[string]string{
		ColdLookup: "Cold Lookup (ms)", ColdStore: "Cold Store (ms)", StoreVisible: "Store Visible (ms)",
		WarmLookup: "Warm Lookup (ms)", WarmRetrieve: "Warm Retrieve (ms)",
	}
	var sections []Section
	for _, op := range Timed() {
		took := r.Took(op)
		if len(took) == 0 {
			continue
		}
		ms := func(d time.Duration) float64 { return math.Round(1000*milliseconds(d)) / 1000 }
		sections = append(sections, Section{op, titles[op], []Entry{
			{op + "_count", "count", len(took)},
			{op + "_mean", "mean", ms(time.Duration(metric.Mean(took)))},
			{op + "_min", "min", ms(minimum(took))},
			{op + "_max", "max", ms(metric.Percentile(took, 1))},
			{op + "_p50", "p50", ms(metric.Percentile(took, 0.5))},
			{op + "_p99", "p99", ms(metric.Percentile(took, 0.99))},
		}})
	}
	return sections
}

func minimum(took []time.Duration) time.Duration {
	least := took[0]
	for _, d := range took {
		least = min(least, d)
	}
	return least
}

// throughput is over all clients, while at least one was at it.
func (r *Result) throughput() Section {
	round := func(v float64) float64 { return math.Round(1000*v) / 1000 }
	s := Section{"throughput", "Throughput", []Entry{
		{"wall_s", "Wall time (s)", round(r.Wall.Seconds())},
		{"startup_s", "Start-up (s)", round(r.Startup.Seconds())},
		{"ops_per_s", "Operations / s", round(r.Rate())},
	}}
	if v := r.Throughput(ColdStore); v > 0 {
		s.Entries = append(s.Entries, Entry{"store_gb_s", "Store (GB/s)", round(v / 1e9)})
	}
	if v := r.Throughput(WarmRetrieve); v > 0 {
		s.Entries = append(s.Entries, Entry{"retrieve_gb_s", "Retrieve (GB/s)", round(v / 1e9)})
	}
	if r.CopyLimit > 0 {
		s.Entries = append(s.Entries, Entry{"copy_limit_gb_s", "Copy limit of this machine (GB/s)", round(r.CopyLimit / 1e9)})
	}
	if touch := r.firstTouch(); touch > 0 {
		s.Entries = append(s.Entries, Entry{"first_touch_s", "First touch of the pool (s)", round(touch.Seconds())})
	}
	if r.MemoryGrew != 0 {
		s.Entries = append(s.Entries, Entry{"server_memory_grew_mb", "Server's memory grew (MB)", round(float64(r.MemoryGrew) / 1e6)})
	}
	return s
}

// firstTouch is the time that went into faulting the pool's pages in, which no
// latency holds.
func (r *Result) firstTouch() time.Duration {
	var sum time.Duration
	for _, s := range r.Samples {
		sum += s.Touch
	}
	return sum
}

// WriteText writes the summary as upstream prints it.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(centred(title, '=') + "\n")
	for _, s := range r.Summary() {
		b.WriteString(centred(s.Title, '-') + "\n")
		for _, e := range s.Entries {
			value := text(e.Value)
			fmt.Fprintf(&b, "%s:%*s\n", e.Label, max(width-len(e.Label)-1, len(value)+1), value)
		}
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "finding: %s\n", f)
	}
	for _, reason := range r.Unsafe {
		fmt.Fprintf(&b, "restart the server before it is used again: %s\n", reason)
	}
	b.WriteString(strings.Repeat("=", width) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func centred(s string, fill byte) string {
	rest := width - len(s) - 2
	left := rest / 2
	return strings.Repeat(string(fill), left) + " " + s + " " + strings.Repeat(string(fill), rest-left)
}

func text(v any) string {
	switch v := v.(type) {
	case float64:
		return fmt.Sprintf("%.2f", v)
	case Calls:
		return fmt.Sprintf("%d/%d/%d/%d", v.Attempted, v.OK, v.Failed, v.TimedOut)
	}
	return fmt.Sprint(v)
}

// WriteJSON writes the summary in upstream's form, {"title": …, "metrics":
// {section: {key: value}}}, with findings beside it.
func (r *Result) WriteJSON(w io.Writer) error {
	metrics := map[string]map[string]any{}
	for _, s := range r.Summary() {
		values := map[string]any{}
		for _, e := range s.Entries {
			values[e.Key] = e.Value
		}
		metrics[s.ID] = values
	}
	out := map[string]any{"title": title, "metrics": metrics, "findings": r.Findings, "server_unsafe": r.Unsafe}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// WriteSamples writes every timed operation as a line of JSON.
func (r *Result) WriteSamples(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, s := range r.Samples {
		if err := encoder.Encode(s); err != nil {
			return err
		}
	}
	return nil
}
