package recipe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// Endpoints are where the services of a started row listen, and what is known
// about them without asking.
type Endpoints struct {
	Engine     string // base URL
	Backend    string // base URL of the HTTP side of the cache server; empty: there is none
	Model      string // as the API names it
	Context    int    // tokens
	Vocab      int
	AnyVocab   bool // the model's is not known: Vocab is what prompts are made of
	TokenBytes int  // bytes of KV per token
	Facts      map[string]string
	Work       func(prompt, cached, output int) float64 // FLOPs of a request, where they are known
	Anatomy    *row.Anatomy                             // where the engine sums up its times; nil: vLLM's names
	Weights    func(context.Context) error              // gives the engine other weights, where it can
	KVCheck    row.KVCheck                              // where the stack lets delivered KV be looked at

	Metrics        string      // page with the engine's counters; empty: the engine's /metrics
	BackendMetrics string      // … and the cache server's
	Blockless      bool        // the engine has no blocks, so it cannot tell their size
	Replicas       []string    // pages of counters of an engine of several servers; none: Metrics
	APIKey         string      // sent to the engine
	Header         http.Header // … with every request
	Shared         bool        // others may use it: nothing is emptied, and hits have no lower bound
	Blind          bool        // its counters cannot be read
	Closes         bool        // the engine closes a connection after each answer, without saying so
	Socket         string      // of DaseR's IPC, where it can be reached
	SlotDir        string      // where an engine that saves its slots to files keeps them; empty: it does not
	without        []string    // witnesses that servers of their versions cannot have
	rename         map[string]string
	Died           func() error // the first service that ended by itself; nil: nobody watches
	Close          func(context.Context) error
}

const (
	stallTimeout = 60 * time.Second // no byte for so long is a stall
	adminTimeout = 10 * time.Second
	pollEvery    = 10 * time.Millisecond
	quietPolls   = 3 // a store must look idle so often in a row
)

// On is the row of that name on services that somebody else has started.
func On(name string, e Endpoints) (row.Row, error) {
	s, ok := specs[name]
	if !ok {
		return nil, fmt.Errorf("row %s is not built in this version; built are %s", name, strings.Join(builtNames(), ", "))
	}
	return attachedRow{spec: s, endpoints: e}, nil
}

// attachedRow is a spec on endpoints that are already there.
type attachedRow struct {
	spec
	endpoints Endpoints
}

// Start assembles a server; what the endpoints' Close does, its Close does.
func (r attachedRow) Start(_ context.Context, env row.Env) (*row.Server, error) {
	return r.assemble(r.endpoints, env), nil
}

// Name is the name of the row.
func (s spec) Name() string { return s.name }

// Supports says whether the row can do f.
func (s spec) Supports(f row.Feature) bool { return slices.Contains(s.features, f) }

// assemble makes a server out of endpoints.
func (s spec) assemble(e Endpoints, env row.Env) *row.Server {
	config := openai.Config{
		BaseURL: e.Engine, Model: e.Model, Concurrency: env.Concurrency, Stall: cmp.Or(env.Stall, stallTimeout), SkipReuse: s.skip, SkipCachePrompt: s.skipPrompt,
		APIKey: e.APIKey, Header: e.Header.Clone(),
	}
	if e.Closes { // a second request on the connection would race the close
		config.Header = http.Header{"Connection": {"close"}}
	}
	client := openai.New(config)
	admin := &http.Client{Timeout: adminTimeout, Transport: withHeader{e.Engine, e.APIKey, e.Header}}
	pages := e.Replicas
	if len(pages) == 0 {
		pages = []string{cmp.Or(e.Metrics, e.Engine+"/metrics")}
	}
	engine := newReplicas(engineProbe, pages, admin)
	if len(e.rename) > 0 {
		engine = renamed{engine, e.rename}
	}
	facts := map[string]string{"reuse_mode": s.reuse, "cold": s.cold}
	maps.Copy(facts, e.Facts)

	if e.Anatomy == nil {
		e.Anatomy = vllmAnatomy()
	}
	cache := &cacheControl{spec: s, client: client, engine: engine, shared: e.Shared, blind: e.Blind}
	server := &row.Server{
		Row: s.name, URL: e.Engine, ModelName: e.Model, Backend: e.Backend, Facts: facts, Context: e.Context, Vocab: e.Vocab, AnyVocab: e.AnyVocab, TokenBytes: e.TokenBytes,
		Law: s.law(env.BlockSize), Deferred: s.backend != nil, Client: client, Cache: cache, KVCheck: e.KVCheck, Weights: e.Weights, Anatomy: e.Anatomy,
		Tokenizer: tokenizer{client},
		Probes:    []row.Probe{engine}, Witnesses: s.witnesses(env.BlockSize, e.TokenBytes),
		Exact: s.exact, Rounding: s.rounding, SkipStores: s.skipPrompt, Died: e.Died, Shared: e.Shared,
	}
	optional(server.Witnesses, func(w row.Witness) bool { return slices.Contains(e.without, w.Name) })
	if e.Blind {
		server.Probes = nil
		optional(server.Witnesses, func(w row.Witness) bool { return w.Probe == engineProbe })
	}
	if !e.Blockless {
		server.BlockSize = []row.BlockSizeReader{{Server: "engine", Read: readBlockSize(engine)}}
	}
	if e.Work != nil {
		server.Work = &row.Work{
			Source: "vllm:estimated_flops_per_gpu", Probe: engineProbe,
			Count: probe.Counter("vllm:estimated_flops_per_gpu", ""), Expected: e.Work,
		}
	}
	closers := []func(){client.Close, admin.CloseIdleConnections}
	if s.backend != nil && e.Backend == "" { // of an attached server, whose cache is out of reach
		s.backend = nil
		server.Readable = newSacrifice(client, e, env).wait
		optional(server.Witnesses, func(w row.Witness) bool { return w.Probe == backendProbe })
	}
	if s.backend != nil {
		cache.backend = s.backend(e.Backend, admin)
		if l, ok := cache.backend.(lmcacheServer); ok && s.own != nil {
			server.Own = s.ownCache(env.BlockSize, client, l)
		}
		server.Probes = append(server.Probes, withStatus(cache.backend, probe.New(backendProbe, cmp.Or(e.BackendMetrics, e.Backend+"/metrics"), admin)))
		if d, ok := cache.backend.(daser); ok {
			d.socket = e.Socket
			cache.backend = d
		}
		server.BlockSize = append(server.BlockSize, row.BlockSizeReader{Server: s.name + " backend", Read: cache.backend.blockSize})
	}
	if s.coldHow == "files" {
		files := newSlots(client, e, env.Concurrency, admin)
		cache.backend, server.Client = files, files
		facts["slot-dir"] = e.SlotDir
	}
	if env.Tiers != nil && s.tier != nil {
		server.Witnesses = append(server.Witnesses, s.tierWitnesses(env.BlockSize, e.TokenBytes)...)
		maps.Copy(facts, tierFacts(*env.Tiers))
		if unit := float64(env.BlockSize * e.TokenBytes); server.Law.Unit > 0 {
			capacity := s.eviction
			capacity.L1Units, capacity.L2Units = float64(env.Tiers.L1Bytes)/unit, float64(env.Tiers.L2Bytes)/unit
			capacity.L2, capacity.Deferred = env.Tiers.L2Dir != "", server.Deferred
			server.Capacity = &capacity
		}
	}
	if d, ok := cache.backend.(daser); ok {
		closers = append(closers, d.http.CloseIdleConnections)
		if d.own != nil {
			config.BaseURL = e.Backend
			chunks := &chunkClient{daser: d, engine: client, infer: openai.New(config), concurrency: env.Concurrency}
			server.Client, server.Upload = chunks, chunks.upload
			closers = append(closers, chunks.infer.Close)
		}
	}
	server.Close = func(ctx context.Context) error {
		for _, c := range closers {
			c()
		}
		if e.Close == nil {
			return nil
		}
		return e.Close(ctx)
	}
	return server
}

// optional says that some witnesses cannot exist here: without them numbers are
// observed.
func optional(witnesses []row.Witness, some func(row.Witness) bool) {
	for i := range witnesses {
		witnesses[i].Required = witnesses[i].Required && !some(witnesses[i])
	}
}

// tierFacts are the sizes of a store under the names of DaseR's manifest.
func tierFacts(t row.Tiers) map[string]string {
	facts := map[string]string{"l1_size_bytes": fmt.Sprint(t.L1Bytes), "skip_l2": fmt.Sprint(t.L2Dir == ""), "storage_tier": "l1-only"}
	if t.L2Dir != "" {
		facts["l2_size_bytes"], facts["storage_tier"] = fmt.Sprint(t.L2Bytes), "l1+l2"
	}
	return facts
}

func readBlockSize(engine row.Probe) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		snapshot, err := engine.Snapshot(ctx)
		if err != nil {
			return 0, err
		}
		size, ok := probe.BlockSize(snapshot)
		if !ok {
			return 0, fmt.Errorf("no single block size in vllm:cache_config_info, which has %v", probe.BlockSizes(snapshot))
		}
		return size, nil
	}
}

// vllmAnatomy are vLLM's histograms of times (names as observed on 0.32.0).
// Their smallest bucket is 0.3 s, so that only sums and counts say something.
func vllmAnatomy() *row.Anatomy {
	return &row.Anatomy{
		Probe: engineProbe, Requests: "vllm:request_prefill_time_seconds_count",
		Queue: "vllm:request_queue_time_seconds_sum", Prefill: "vllm:request_prefill_time_seconds_sum",
	}
}
