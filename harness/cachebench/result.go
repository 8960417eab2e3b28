package cachebench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/row"
)

// Names of what is timed.
const (
	ColdLookup   = "cold_lookup"
	ColdStore    = "cold_store"
	StoreVisible = "store_visible" // from the start of a store until a lookup finds all of it
	WarmLookup   = "warm_lookup"
	WarmRetrieve = "warm_retrieve"
)

// Timed lists them in order.
func Timed() []string { return []string{ColdLookup, ColdStore, StoreVisible, WarmLookup, WarmRetrieve} }

// A Sample is one timed operation.
type Sample struct {
	Op       string        `json:"op"`
	Client   int           `json:"client"`
	Sequence int           `json:"sequence"`
	Start    time.Duration `json:"start_ns"` // after the clock started
	Took     time.Duration `json:"took_ns"`
	Bytes    int           `json:"bytes,omitempty"`
	Copy     time.Duration `json:"copy_ns,omitempty"` // by the client
	Touch    time.Duration `json:"first_touch_ns,omitempty"`
	Late     time.Duration `json:"late_ns,omitempty"` // against the rate that was asked for
}

// Calls counts the calls of one kind, those outside the clock included.
type Calls struct {
	Attempted int `json:"attempted"`
	OK        int `json:"ok"`
	Failed    int `json:"failed"`
	TimedOut  int `json:"timed_out"`
}

// A Result is what a run came to.
type Result struct {
	Server   *lmcmp.Server
	Transfer lmcmp.Transfer // resolved
	Config   Config

	Samples     []Sample
	Calls       map[string]Calls
	Requests    int // finished
	ChecksumOK  int // comparisons in which every byte was right
	ChecksumBad int
	ServerSums  int // requests for which the server's checksums were compared, too
	Hit, Asked  int // tokens in warm lookups
	Wall        time.Duration
	Startup     time.Duration // connecting and registering
	CopyLimit   float64       // bytes a second that this machine copies at best; 0: not measured
	MemoryGrew  int64         // bytes of the server's resident memory; 0 where it does not say
	Findings    []row.Finding
	Unsafe      []string // why the server should be restarted before it is used again
	Interrupted bool
}

// Valid says whether the numbers mean what they say.
func (r *Result) Valid() bool { return len(r.Findings) == 0 && r.ChecksumBad == 0 && r.Requests > 0 }

// Took are the times of one kind, in the order of their ends.
func (r *Result) Took(op string) []time.Duration {
	var all []time.Duration
	for _, s := range r.Samples {
		if s.Op == op {
			all = append(all, s.Took)
		}
	}
	return all
}

// Throughput is bytes a second while at least one operation of that kind was
// under way, over all clients; 0 where none was. Filling and comparing between
// the operations is the benchmark's and counts nowhere.
func (r *Result) Throughput(op string) float64 {
	bytes := 0
	for _, s := range r.Samples {
		if s.Op == op {
			bytes += s.Bytes
		}
	}
	if busy := r.busy(op); busy > 0 {
		return float64(bytes) / busy.Seconds()
	}
	return 0
}

// Rate is operations a second while at least one was under way.
func (r *Result) Rate() float64 {
	n := 0
	for _, s := range r.Samples {
		if s.Op != StoreVisible {
			n++
		}
	}
	if busy := r.busy(""); busy > 0 {
		return float64(n) / busy.Seconds()
	}
	return 0
}

// Busy is the time in which at least one operation was under way.
func (r *Result) Busy() time.Duration { return r.busy("") }

// busy is the time in which an operation of that kind was under way; any, where
// the kind is empty. To wait until a store is visible is no operation.
func (r *Result) busy(op string) time.Duration {
	type span struct{ start, end time.Duration }
	var spans []span
	for _, s := range r.Samples {
		if s.Op == op || op == "" && s.Op != StoreVisible {
			spans = append(spans, span{s.Start, s.Start + s.Took})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var busy, until time.Duration
	for _, s := range spans {
		if s.end > until {
			busy += s.end - max(s.start, until)
			until = s.end
		}
	}
	return busy
}

// A record collects what the clients do. Its methods may be called by all.
type record struct {
	mu     sync.Mutex
	result *Result
	start  time.Time // of the clock
	// consumed counts what the server's counters must have counted.
	consumedAsked, consumedHit int
}

// maxFindings bounds a list that one broken server would fill.
const maxFindings = 50

func (r *record) finding(f row.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.result.Findings) < maxFindings {
		r.result.Findings = append(r.result.Findings, f)
	}
}

// taint notes why the server should not be used again as it is.
func (r *record) taint(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := fmt.Sprintf(format, args...)
	if !slices.Contains(r.result.Unsafe, reason) {
		r.result.Unsafe = append(r.result.Unsafe, reason)
	}
}

func (r *record) sample(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Samples = append(r.result.Samples, s)
}

// call counts one call, and makes a finding of its failure.
func (r *record) call(name, phase, request string, err error) {
	r.mu.Lock()
	c := r.result.Calls[name]
	c.Attempted++
	switch {
	case err == nil:
		c.OK++
	case wire.IsTimeout(err):
		c.TimedOut++
	default:
		c.Failed++
	}
	r.result.Calls[name] = c
	r.mu.Unlock()
	if err == nil || errors.Is(err, lmcmp.ErrRefused) && name == "retrieve" {
		return // what was found and is refused has a finding of its own
	}
	f := row.Finding{Code: row.RequestFailed, Phase: phase, Request: request, Evidence: err.Error(), Advice: "the server's log says what it refused"}
	var lost *wire.LostError
	switch {
	case errors.Is(err, wire.ErrMalformed):
		f.Advice = "the server speaks another dialect than the one that was chosen, or is broken"
		r.taint("the connection was given up in mid-run")
	case errors.As(err, &lost), strings.Contains(err.Error(), "connecting to the cache server"):
		f.Code, f.Advice = row.ServerDied, "look at the end of the server's log"
		r.taint("the connection was lost in mid-run")
	case wire.IsTimeout(err):
		f.Code = row.Stalled
		r.taint("%s was not answered: locks or reservations may be left", name)
	case name == "lookup" || name == "store" || name == "retrieve":
		r.taint("%s failed: locks or reservations may be left", name)
	}
	r.finding(f)
}
