package row

import "fmt"

// A Code names what a pass shows about its own validity. The list is closed:
// a fault that needs its own name gets a new code here.
type Code string

// The findings. Each one makes the numbers of its cycle invalid.
const (
	RequestFailed         Code = "request-failed"           // not HTTP 200, or an error event in the stream
	PromptDiffers         Code = "prompt-differs"           // the server answered another prompt than was sent
	WorkDiffers           Code = "work-differs"             // the engine computed more or less than its hits leave to compute
	Stalled               Code = "stalled"                  // no byte within the stall deadline
	Truncated             Code = "truncated"                // the stream ended before a finish reason
	ShortOutput           Code = "short-output"             // fewer tokens than were asked for
	PromptLength          Code = "prompt-length"            // the server saw another prompt length than was sent
	ColdNotCold           Code = "cold-not-cold"            // hits in the cold pass beyond the plan's own sharing
	ResetNotHonoured      Code = "reset-not-honoured"       // a prompt that was cached before a reset still hits
	HitBelowOracle        Code = "hit-below-oracle"         // fewer hit tokens than the plan and the law give
	HitAboveOracle        Code = "hit-above-oracle"         // more hit tokens than the plan and the law give
	WitnessMissing        Code = "witness-missing"          // a required witness said nothing: unknown, not 0
	WitnessDisagrees      Code = "witness-disagrees"        // two witnesses differ beyond their laws
	LoadShorterThanLookup Code = "load-shorter-than-lookup" // found more than was moved
	CounterStuck          Code = "counter-stuck"            // a hit counter stood still while the others moved as they must
	CountedTwice          Code = "counted-twice"            // exactly twice the hits that there were
	CounterReset          Code = "counter-reset"            // a counter went down: the server restarted
	ImpossibleCounter     Code = "impossible-counter"       // more hits than queries, more cached than prompt
	NoQueries             Code = "no-queries"               // 0/0: nobody asked the cache
	ForeignTraffic        Code = "foreign-traffic"          // counters moved more than this run sent
	OutputDiffers         Code = "output-differs"           // warm output is not the cold output
	LogprobShift          Code = "logprob-shift"            // tokens agree, logprobs before any divergence moved
	LogprobNull           Code = "logprob-null"             // a null logprob: not finite in the model
	KVDiffers             Code = "kv-differs"               // delivered KV is not what the model computes for its tokens
	TiedTooOften          Code = "tied-too-often"           // so many outputs part at ties that they show nothing
	ControlRefused        Code = "control-refused"          // what was to show how outputs differ without a fault used a cache
	StaleCache            Code = "stale-cache"              // KV of other weights was served
	BlockSizeIgnored      Code = "block-size-ignored"       // a server runs with another block size than asked
	LoadNotDelivered      Code = "load-not-delivered"       // fewer requests in flight than asked for
	ChecksumDiffers       Code = "checksum-differs"         // the cache server's checksums of registered memory are not the client's
	LocksLeaked           Code = "locks-leaked"             // objects stay locked for readers that are done
	StrayReply            Code = "stray-reply"              // a reply that came twice, or after its deadline
	UnregisterFailed      Code = "unregister-failed"        // a cache server may still hold a client's memory
	ServerDied            Code = "server-died"              // connection refused or reset, or health gone
)

// A Finding is one thing that a pass shows about its own validity: the code,
// the evidence and what to do next.
type Finding struct {
	Code     Code   `json:"code"`
	Phase    string `json:"phase"`             // start, reset, upload, cold, warm, reference
	Request  string `json:"request,omitempty"` // id of the request, empty if it is about the pass
	Evidence string `json:"evidence"`          // what was seen, with the numbers
	Advice   string `json:"advice,omitempty"`  // what to look at next
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s (%s", f.Code, f.Phase)
	if f.Request != "" {
		s += ", request " + f.Request
	}
	s += "): " + f.Evidence
	if f.Advice != "" {
		s += "; " + f.Advice
	}
	return s
}

// A Label says something about the numbers of a cycle that is worth knowing and
// no fault. The list is closed.
type Label string

// The labels.
const (
	NoHits        Label = "no-hits"                // the plan gives this row nothing to hit, so nothing was proved about its cache
	ClientBound   Label = "client-bound"           // the client's own error is over a tenth of the difference between cold and warm
	TimeDisagrees Label = "time-witness-disagrees" // the server accounts for more time than the client saw pass
	SharedServer  Label = "shared-server"          // others may use the server: hits were held to an upper bound alone, so nothing is proven
	SettleUnseen  Label = "settle-unseen"          // nobody tells when stores can be read: a prompt stored after them stood for them
	NothingFromL2 Label = "nothing-from-l2"        // a second tier was asked for and no hit came from it

	GPUThrottled Label = "gpu-throttled" // power or heat held the clocks of the GPU down in this cycle

	// More than half of the time to first token, from the schedule, was waiting
	// for a slot at the client: more was asked for than the server can hold.
	QueueDominated Label = "queue-dominated"
)
