// Package row holds the types that the parts of the harness share: what a row
// is, what a running server is made of, what a request did, what a witness
// says and what a finding is. It has no behaviour beyond reading its own
// fields.
package row

import (
	"context"
	"io"
	"time"

	"github.com/kvproof/kvproof/fixtures"
)

// A Feature is something that a row can or cannot do. The set is closed.
type Feature string

// The features.
const (
	Reuse     Feature = "reuse"      // a repeated prompt can hit: the row has a cache
	Reset     Feature = "reset"      // Cold empties the cache, which is proved each cycle
	Streaming Feature = "streaming"  // tokens arrive one by one, so TTFT is ours
	Logprobs  Feature = "logprobs"   // the proof can compare logprobs
	Documents Feature = "documents"  // only workloads with documents apply
	Lossy     Feature = "lossy"      // outputs after a hit differ by design; the KV itself is checked
	SkipReuse Feature = "skip-reuse" // a request can be answered without the cache
	Salts     Feature = "salts"      // requests with different cache_salt share nothing
	Tiered    Feature = "tiered"     // its store has tiers whose sizes can be set
	Restarts  Feature = "restarts"   // what holds its cache can be started anew within seconds
	StopIDs   Feature = "stop-ids"   // a request can name token ids that end its output
	Unshared  Feature = "unshared"   // only workloads whose prompts share nothing apply: what is kept of shared parts depends on chance
)

// A Row says what one KV-cache configuration is and can do.
type Row interface {
	Name() string
	Supports(Feature) bool
	Start(context.Context, Env) (*Server, error)
}

// Env is what a row needs to start.
type Env struct {
	BlockSize   int           // B, to be passed to every service
	Concurrency int           // requests in flight at most
	ModelName   string        // by which clients ask for the model; empty: the stack's own
	MaxSeqs     int           // requests that the engine computes at one time; 0: as many as are in flight
	Log         io.Writer     // log lines of the services
	Stall       time.Duration // no byte of an answer for so long is a stall; 0: a minute
	CacheBytes  int64         // of KV that a cache must keep without evicting; 0: the stack's default is enough
	Context     int           // tokens of prompt plus output at most; 0: what the model was made for
	Dir         string        // for logs of the services; empty: they go with the row
	Tiers       *Tiers        // of the cache server's store; nil: the stack's default, without eviction
}

// Tiers are the sizes of a cache server's store, in bytes.
type Tiers struct {
	L1Bytes int64  // in memory
	L2Bytes int64  // on disk; 0: unbounded
	L2Dir   string // empty: no L2
}

// A Server is a running row, made of parts that can be replaced alone.
type Server struct {
	Row        string
	URL        string            // of the engine
	ModelName  string            // as the API names the model
	Backend    string            // URL of the cache server behind it; empty: there is none
	Facts      map[string]string // versions, model, how cold is reached: for the manifest
	Context    int               // tokens of prompt plus output at most
	TokenBytes int               // of KV for each token; 0: unknown
	Vocab      int               // token ids lie in [fixtures.FirstToken, Vocab)
	AnyVocab   bool              // … of prompts: those of answers may be larger, for nobody knows the model's
	Law        fixtures.Law      // of usage: what the engine reports as cached
	Exact      bool              // equal inputs give equal bits, whatever the batch
	Rounding   float64           // logprobs that are no further apart are equal, in nats
	Shared     bool              // others may use it too: nothing is emptied, hits have no lower bound, counters may move more than we send
	Deferred   bool              // stores become readable some time after the request ended, so Settle matters
	Saltless   bool              // requests with different salts were not seen to share nothing, whatever the row declares
	SkipStores bool              // a request that is answered without the cache is kept in it all the same
	Client     Client
	Cache      Cache
	Probes     []Probe
	Witnesses  []Witness
	BlockSize  []BlockSizeReader                                // one per server that can tell
	Capacity   *fixtures.Capacity                               // of the store, where the oracle must know it; nil: nothing is evicted
	Upload     func(context.Context, []Request) (Upload, error) // stores the documents of a plan; nil: requests store
	Reopen     *CacheRestart                                    // nil: it cannot be
	Own        *OwnCache                                        // nil: the engine has none beside the cache that is measured
	Anatomy    *Anatomy                                         // nil: the server does not tell where time goes
	Work       *Work                                            // nil: the engine does not tell how much it computes
	KVCheck    KVCheck                                          // nil: delivered KV cannot be looked at
	Weights    func(context.Context) error                      // gives the engine other weights; nil: they cannot be changed
	Readable   func(context.Context) error                      // waits until stores can be read by asking, which moves counters; nil: Settle sees it
	Tokenizer  Tokenizer                                        // nil: the engine does not tokenize for others
	Died       func() error                                     // why a service ended by itself, nil while all run; nil: nobody watches
	Restart    func(ctx context.Context, service string) error  // kills a service as a crash would and starts it again; nil: it cannot be
	Keep       func() (Kept, error)                             // leaves the services up when the server closes; nil: it cannot
	Close      func(context.Context) error
}

// Kept says how to reach services that were left up, and how to end them.
type Kept struct {
	Attach string // value of -attach
	End    string // shell commands
}

// An OwnCache is the engine's own prefix cache in front of a cache server: the
// two may end at different places, and a hit is as long as the longer one.
type OwnCache struct {
	Law        fixtures.Law                // of its hits
	Empty      func(context.Context) error // it alone
	EmptyStore func(context.Context) error // the cache server alone
}

// A CacheRestart ends what holds the cache of a row and starts it again.
type CacheRestart struct {
	Do    func(context.Context) error
	Keeps bool // what was stored is found again; else it is a miss
}

// An Upload is what storing the documents of a plan took, until they could be
// read.
type Upload struct {
	Documents int
	Took      time.Duration
}

// Work is an engine's account of what it computed, against what its hits leave
// to compute: a hit that is reported and recomputed all the same shows here.
type Work struct {
	Source   string // what it reads
	Probe    string // the probe whose snapshots it reads
	Count    func(before, after Snapshot) Count
	Expected func(prompt, cached, output int) float64 // of one request, in the same unit
}

// An Anatomy names the counters in which a server sums up, in seconds over all
// requests, where the time to their first token went. An empty name is a part
// that the server does not tell.
type Anatomy struct {
	Probe    string // the probe whose snapshots have them
	Requests string // how many requests are in the sums
	Queue    string // waiting to be scheduled
	Prefill  string // from being scheduled to the first token
	Load     string // waiting for KV from a cache; a part of Prefill
}

// A KVCheck compares the KV that a cache delivers with what the model computes
// for the same tokens, while it is on.
type KVCheck interface {
	Start(context.Context) error
	Stop(context.Context) (KVReport, error)
}

// A KVReport is what a KVCheck saw: how many pieces it compared, how many of
// them differed, and in words where.
type KVReport struct {
	Checked    int      `json:"checked"`
	Tokens     int      `json:"tokens"` // in those
	Damaged    int      `json:"damaged"`
	Mismatches []string `json:"mismatches"`
}

// A Client sends one request and stamps every chunk of the answer.
type Client interface {
	Do(context.Context, Request) Timeline
}

// A Cache is what a cycle does to the cache of a row between its passes.
type Cache interface {
	Cold(context.Context) error   // make it empty; nil where there is nothing to empty
	Settle(context.Context) error // wait until what was stored can be read
}

// A BlockSizeReader reads the effective block size back from a server.
type BlockSizeReader struct {
	Server string // as named in the finding, e.g. "engine"
	Read   func(context.Context) (int, error)
}

// A Probe takes a snapshot of one endpoint's counters.
type Probe interface {
	Name() string // engine, backend
	Snapshot(context.Context) (Snapshot, error)
}

// A Series is one line of a metrics page.
type Series struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value"`
}

// A Snapshot is what one endpoint said at one moment. NaN and infinite values
// are left out by the reader.
type Snapshot struct {
	Probe  string   `json:"probe"`
	Series []Series `json:"series"`
	Status any      `json:"status,omitempty"` // its status page, decoded from JSON; nil: it has none
}

// A State says what a count is worth.
type State string

// The states of a count.
const (
	Known      State = "known"
	Absent     State = "absent"     // the endpoint does not export it
	Restarted  State = "restarted"  // a counter went down between the snapshots
	Impossible State = "impossible" // more hits than queries, or a negative number
)

// A Count is the change of one witness over a pass, in tokens.
type Count struct {
	Hits       float64
	Queries    float64
	State      State
	HasQueries bool
}

// A Tier is a part of what a cache with two tiers counts.
type Tier string

// The parts.
const (
	L1      Tier = "l1"      // hits in memory
	L2      Tier = "l2"      // hits on disk
	Evicted Tier = "evicted" // what left L1 for want of room, as tokens

	// Of a cache server behind an engine that has an OwnCache.
	Own    Tier = "own"    // hits of the engine's own cache
	Beyond Tier = "beyond" // hits of the cache server beyond those
	Loaded Tier = "loaded" // what the cache server delivered: all that it found, where that was more
)

// A Witness is an independent source of hit tokens beside usage.
type Witness struct {
	Name     string       // engine, backend, bytes
	Source   string       // what it reads, e.g. "vllm:external_prefix_cache_hits_total"
	Law      fixtures.Law // of its hits
	Required bool
	Merged   bool   // what several requests load at one time counts once
	Tier     Tier   // it counts that part alone; empty: all hits
	Probe    string // the probe whose snapshots it reads
	Count    func(before, after Snapshot) Count

	// Asked is how many tokens its query counter moves by for a prompt of so
	// many tokens; nil: unknown, or it counts no queries.
	Asked func(prompt int) int
}
