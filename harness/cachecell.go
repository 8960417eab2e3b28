package harness

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
)

// A CacheCell is one way to use the cache server alone: a transfer, an
// operation, a number of clients and the chunks of a prompt.
type CacheCell struct {
	session *session
	server  *cacheServer
	config  cachebench.Config
	results []*cachebench.Result
	name    string // of its artifacts
}

// cacheRow is the row whose cache server this is: without it in -backend there
// is nothing to ask.
const cacheRow = "lmcache"

// payloads are the chunks of a prompt that are swept.
var payloads = []int{1, 4}

// EachCacheServer runs body for every transfer of the cache server and every
// operation, as sub-benchmarks transfer=…/block=…/op=…/clients=…/chunks=….
// A transfer has a server of its own, which ends with it.
func EachCacheServer(b *testing.B, body func(*testing.B, *CacheCell)) {
	s := current
	if !slices.ContainsFunc(s.selection.rows, func(r row.Row) bool { return r.Name() == cacheRow }) {
		b.Skipf("-backend=%s leaves out row %s, whose cache server this asks.", s.settings.Backend, cacheRow)
	}
	shape, err := s.settings.kvShape()
	if err != nil {
		b.Fatal(err)
	}
	place := s.cachePlace(b)
	for _, transfer := range place.transfers {
		b.Run("transfer="+string(transfer), func(b *testing.B) {
			b.Run(fmt.Sprintf("block=%d", s.settings.BlockSize), func(b *testing.B) {
				server := &cacheServer{stack: s.cacheStack(), chunk: s.settings.BlockSize, gpu: kvOnGPU, dir: s.serverLogs()}
				b.Cleanup(func() {
					if err := server.close(); err != nil {
						b.Error(err)
					}
				})
				for _, c := range s.cacheConfigs() {
					b.Run(fmt.Sprintf("op=%s/clients=%d/chunks=%d", c.Op, c.Clients, c.Tokens/s.settings.BlockSize), func(b *testing.B) {
						config := c
						config.Transfer = transfer
						if config.Shape, err = s.sized(shape, config); err != nil {
							b.Fatal(err)
						}
						place.put(&config)
						if err := server.start(b, s.ctx, s.cacheBytes(shape)); err != nil {
							b.Fatal(err)
						}
						body(b, &CacheCell{session: s, server: server, config: config, name: strings.ReplaceAll(b.Name(), "/", "_")})
					})
				}
			})
		})
	}
}

// cacheConfigs are what is asked of each transfer.
func (s *session) cacheConfigs() []cachebench.Config {
	clients := []int{1}
	if s.settings.Concurrency > 1 {
		clients = append(clients, s.settings.Concurrency)
	}
	config := func(op cachebench.Operation, clients, chunks int) cachebench.Config {
		return cachebench.Config{
			Op: op, Clients: clients, Tokens: chunks*s.settings.BlockSize + 1, Requests: s.settings.Requests * clients,
			Seed: s.settings.Seed, Patience: s.settings.Timeout, Rate: s.cacheRate(),
		}
	}
	var all []cachebench.Config
	for _, n := range clients {
		for _, chunks := range payloads {
			all = append(all, config(cachebench.Operation{Kind: cachebench.OpPair}, n, chunks))
		}
	}
	most, largest := clients[len(clients)-1], payloads[len(payloads)-1]
	for _, op := range []cachebench.Operation{{Kind: cachebench.OpStore}, {Kind: cachebench.OpRetrieve}, {Kind: cachebench.OpMixed, Share: 0.5}} {
		all = append(all, config(op, most, largest))
	}
	return all
}

// cacheBytes is the most KV that one run stores, prompts before the clock
// included.
func (s *session) cacheBytes(shape lmcmp.Shape) int64 {
	most := 0
	for _, c := range s.cacheConfigs() {
		prompts := c.Requests + cachebench.Prewarmed*c.Clients
		most = max(most, prompts*c.Tokens*shape.TokenBytes())
	}
	return int64(most)
}

// cacheRate is -rate where it is a number: an open loop of requests.
func (s *session) cacheRate() float64 {
	var rate float64
	if _, err := fmt.Sscanf(s.settings.Rate, "%g", &rate); err != nil || rate > 1e9 {
		return 0
	}
	return rate
}

// pageSize is the block size of an engine's pages, where the KV shape leaves it
// open.
const pageSize = 16

// kvShape is -kvshape with its block size filled in.
func (s *Settings) kvShape() (lmcmp.Shape, error) {
	shape, err := lmcmp.ParseShape(s.KVShape)
	if err != nil {
		return nil, err
	}
	page := 0
	if shape.BlockSize() == 0 {
		page = pageSize
		if s.BlockSize%page != 0 {
			page = max(s.BlockSize, 1)
		}
	}
	blocks := 0
	if shape.Blocks() == 0 {
		blocks = 1 // filled in for each cell
	}
	if shape, err = shape.WithBlocks(blocks, page); err != nil {
		return nil, err
	}
	return shape, shape.CheckChunk(s.BlockSize)
}

// sized is the shape with the blocks that a cell needs, where -kvshape leaves
// their number open: two prompts for each client and the null block.
func (s *session) sized(shape lmcmp.Shape, c cachebench.Config) (lmcmp.Shape, error) {
	if open, err := lmcmp.ParseShape(s.settings.KVShape); err != nil || open.Blocks() != 0 {
		return shape, err
	}
	sized := slices.Clone(shape)
	for i := range sized {
		sized[i].Blocks = 1 + 2*c.Clients*(c.Tokens/shape.BlockSize())
	}
	return sized.WithBlocks(0, 0)
}

// Run is one operation of the benchmark: a run of the cell's requests under a
// fresh cache salt. Findings fail the benchmark, and nothing is printed.
func (c *CacheCell) Run(b *testing.B) {
	b.Helper()
	config := c.config
	config.Salt = rand.Text()
	c.session.progress.show(c.name)
	result, err := cachebench.Run(c.session.ctx, c.server.server, config)
	c.session.progress.clear()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.keep(result); err != nil {
		b.Error(err)
	}
	for _, f := range result.Findings {
		b.Errorf("%s", f)
	}
	if result.Interrupted {
		b.Fatal("interrupted")
	}
	if !result.Valid() {
		b.FailNow()
	}
	c.results = append(c.results, result)
	c.session.cacheRuns++
}

// keep writes the summary and every timed operation into the run's artifacts.
func (c *CacheCell) keep(r *cachebench.Result) error {
	if c.session.artifacts == nil {
		return nil
	}
	dir := filepath.Join(c.session.artifacts.Dir, "cacheserver", c.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(*os.File) error{
		"summary.json":  func(f *os.File) error { return r.WriteJSON(f) },
		"samples.jsonl": func(f *os.File) error { return r.WriteSamples(f) },
	} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := write(f); err != nil {
			_ = f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Report puts the metrics of the runs on the benchmark's line.
func (c *CacheCell) Report(b *testing.B) {
	b.Helper()
	values, err := cacheMetrics(c.results)
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range values {
		b.ReportMetric(v.Value, v.Unit)
	}
}

// cacheMetrics pools the runs of a cell into one line.
func cacheMetrics(results []*cachebench.Result) ([]metric.Metric, error) {
	pooled := metric.CacheServer{Took: map[string][]time.Duration{}}
	for _, r := range results {
		for op, unit := range map[string]string{
			cachebench.ColdLookup: metric.In(metric.Cold, metric.Lookup), cachebench.WarmLookup: metric.In(metric.Warm, metric.Lookup),
			cachebench.ColdStore: metric.Store, cachebench.StoreVisible: metric.StoreVisible, cachebench.WarmRetrieve: metric.Retrieve,
		} {
			pooled.Took[unit] = append(pooled.Took[unit], r.Took(op)...)
		}
		pooled.Stored = append(pooled.Stored, r.Throughput(cachebench.ColdStore))
		pooled.Retrieved = append(pooled.Retrieved, r.Throughput(cachebench.WarmRetrieve))
		pooled.Rate = append(pooled.Rate, r.Rate())
		pooled.Busy += r.Busy()
		pooled.Hit, pooled.Asked = pooled.Hit+r.Hit, pooled.Asked+r.Asked
		pooled.Right, pooled.Compared = pooled.Right+r.ChecksumOK, pooled.Compared+r.ChecksumOK+r.ChecksumBad
	}
	return pooled.Metrics()
}
