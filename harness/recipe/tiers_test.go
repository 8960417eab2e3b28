package recipe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/mini/connector"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

const (
	tierBlock    = 16
	tierBlockLen = 2 * tierBlock // values: eight bytes of KV a token
)

// A tierBench is a store with two tiers and the oracle of its capacity, which
// share no code.
type tierBench struct {
	*testing.T
	store  kv.Store
	probe  row.Probe
	url    string
	oracle *fixtures.Tiers
}

// A pool is memory of this process.
type pool []byte

func (p pool) Bytes() []byte { return p }
func (pool) Close() error    { return nil }

// newTierBench makes an L1 of that many units, with the default watermark. l2
// is the room of L2 in units: 0 for none, negative for no bound.
func newTierBench(t *testing.T, l1, l2 int, deferred bool) *tierBench {
	t.Helper()
	const unitBytes = 4 * tierBlockLen
	config := lmcache.Config{
		Chunk: tierBlock, NullBlock: lmcache.NoNullBlock, Align: 4, ClearL2: true, NoShm: true,
		L1Bytes: int64(l1) * unitBytes, Staging: 1 << 20,
	}
	capacity := fixtures.Capacity{L1Units: float64(l1), L2: l2 != 0, Deferred: deferred}
	if l2 != 0 {
		config.L2Dir = t.TempDir()
	}
	if l2 > 0 {
		config.L2Bytes, capacity.L2Units = int64(l2)*unitBytes, float64(l2)
	}
	s, err := lmcache.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	c, err := connector.New(t.Context(), connector.Config{
		Endpoint: s.Endpoint(), Dialect: s.Dialect(), Model: "mini-weights", BlockSize: tierBlock, Layers: 1, Hidden: 1, ForceReset: true,
		Open: func(name string, size int) (connector.Pool, error) {
			bytes, err := s.Open(name, size)
			return pool(bytes), err
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return &tierBench{
		T: t, store: c, url: server.URL,
		probe:  probe.New("backend", server.URL+"/metrics", server.Client()),
		oracle: fixtures.NewTiers(fixtures.LookupLaw(tierBlock), capacity),
	}
}

// request does what an engine does for a prompt. What was lost between lookup
// and load, which a store of this size does not prevent, is computed again.
func (b *tierBench) request(r fixtures.Request) error {
	ctx := b.Context()
	asked := kv.Request{ID: fmt.Sprint(r.Index), Tokens: r.Prompt}
	blocks := make([][]float32, (len(r.Prompt)+tierBlock-1)/tierBlock)
	for i := range blocks {
		blocks[i] = make([]float32, tierBlockLen)
	}
	found, err := b.store.Lookup(ctx, asked)
	if err != nil {
		return err
	}
	if found > 0 {
		if err := b.store.Load(ctx, asked, min(found, len(r.Prompt)-1), blocks); err != nil {
			found = 0
		}
	}
	if len(r.Prompt)/tierBlock*tierBlock <= found {
		return nil
	}
	return b.store.Store(ctx, asked, blocks)
}

// settle waits until all that was acknowledged is written.
func (b *tierBench) settle() {
	b.Helper()
	for {
		response, err := http.Get(b.url + "/status")
		require.NoError(b, err)
		var status struct {
			Storage struct {
				Store struct {
					Pending  int `json:"pending_keys_count"`
					InFlight int `json:"in_flight_task_count"`
				} `json:"store_controller"`
			} `json:"storage_manager"`
		}
		require.NoError(b, json.NewDecoder(response.Body).Decode(&status))
		require.NoError(b, response.Body.Close())
		if status.Storage.Store.Pending+status.Storage.Store.InFlight == 0 {
			return
		}
		runtime.Gosched()
	}
}

// hits runs f and returns the tokens that lookups found meanwhile: in L1, in
// L2 and together.
func (b *tierBench) hits(f func()) [3]int {
	b.Helper()
	before, err := b.probe.Snapshot(b.Context())
	require.NoError(b, err)
	f()
	b.settle()
	after, err := b.probe.Snapshot(b.Context())
	require.NoError(b, err)
	var n [3]int
	for i, tier := range []string{"_l1", "_l2", ""} {
		value, state := probe.Delta(before, after, "lmcache_mp_lookup_hit"+tier+"_tokens_total", nil)
		require.Equal(b, row.Known, state)
		n[i] = int(value)
	}
	return n
}

// one sends a plan one request at a time and lets each store land.
func (b *tierBench) one(plan fixtures.Plan) (hits [][3]int) {
	for _, r := range plan.Requests {
		hits = append(hits, b.hits(func() { require.NoError(b, b.request(r)) }))
	}
	return hits
}

// loop keeps so many requests in flight, begun in the order of the plan.
func (b *tierBench) loop(plan fixtures.Plan, concurrency int) [3]int {
	return b.hits(func() {
		requests := make(chan fixtures.Request)
		var loop sync.WaitGroup
		for range concurrency {
			loop.Go(func() {
				for r := range requests {
					if err := b.request(r); err != nil {
						b.Errorf("request %d: %v", r.Index, err)
					}
				}
			})
		}
		for _, r := range plan.Requests {
			requests <- r
		}
		close(requests)
		loop.Wait()
	})
}

func tierPlan(t *testing.T, workload string, cycle int) fixtures.Plan {
	t.Helper()
	w, err := fixtures.ByName(workload)
	require.NoError(t, err)
	plan, err := w.Plan(fixtures.Params{
		Requests: 10, InputLen: 8*tierBlock + 5, OutputLen: 4, BlockSize: tierBlock,
		Context: 64 * tierBlock, Vocab: 4096, Seed: 42, Cycle: cycle,
	})
	require.NoError(t, err)
	return plan
}

// distinct is the number of units of a plan.
func distinct(plan fixtures.Plan) int {
	all := fixtures.NewTiers(fixtures.LookupLaw(tierBlock), fixtures.Capacity{L1Units: math.MaxInt32})
	all.Store(plan, 1)
	return all.HeldL1().Min
}

// eachTierBench runs a test for workloads that share nothing, one prefix and
// several, on caches that have room for part of them.
func eachTierBench(t *testing.T, deferred bool, test func(b *tierBench, plan, other fixtures.Plan)) {
	for _, workload := range []string{"unique", "shared-prefix", "multi-prefix"} {
		plan, other := tierPlan(t, workload, 0), tierPlan(t, workload, 1)
		n := distinct(plan)
		for _, room := range []struct {
			name   string
			l1, l2 int
		}{
			{"L1 of 80 percent and an L2", n * 8 / 10, -1},
			{"L1 of 80 percent and a small L2", n * 8 / 10, n * 9 / 10},
			{"L1 of 80 percent alone", n * 8 / 10, 0},
			{"room for all", 4 * n, -1},
		} {
			t.Run(workload+", "+room.name, func(t *testing.T) {
				test(newTierBench(t, room.l1, room.l2, deferred), plan, other)
			})
		}
	}
}

// One request in flight, and every number of every request is as predicted.
func TestTiersOfTheStoreAreThoseOfTheOracle(t *testing.T) {
	eachTierBench(t, false, func(b *tierBench, plan, other fixtures.Plan) {
		for i, pass := range []fixtures.Plan{plan, plan, other} {
			e := b.oracle.ExpectTiers(pass, 1)
			b.oracle.Store(pass, 1)
			for r, got := range b.one(pass) {
				want := [3]fixtures.Interval{e.L1.Requests[r], e.L2.Requests[r], e.Hits.Requests[r]}
				for part, n := range got {
					require.Equal(b, want[part], fixtures.Interval{Min: n, Max: n}, "pass %d, request %d, part %d", i, r, part)
				}
			}
		}
	})
}

// Prompts that branch at every block, so that old and new units of a prompt
// compete for one place.
func TestTiersOfBranchingPrompts(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for round := range 8 {
		b := newTierBench(t, 4+random.IntN(12), []int{0, 12, -1}[random.IntN(3)], false)
		plan := fixtures.Plan{Requests: make([]fixtures.Request, 25)}
		for i := range plan.Requests {
			r := fixtures.Request{Index: i, Prompt: []int32{}}
			for range 1 + random.IntN(5) {
				branch := int32(fixtures.FirstToken + random.IntN(2))
				r.Prompt = append(r.Prompt, slices.Repeat([]int32{branch}, tierBlock)...)
			}
			plan.Requests[i] = r
		}
		e := b.oracle.ExpectTiers(plan, 1)
		for r, got := range b.one(plan) {
			want := [3]int{e.L1.Requests[r].Min, e.L2.Requests[r].Min, e.Hits.Requests[r].Min}
			require.Equal(t, want, got, "round %d, request %d", round, r)
		}
	}
}

// With several in flight and stores that land whenever they do, every total
// lies within what was predicted.
func TestTiersUnderConcurrency(t *testing.T) {
	eachTierBench(t, true, func(b *tierBench, plan, other fixtures.Plan) {
		for i, pass := range []fixtures.Plan{plan, plan, other} {
			e := b.oracle.ExpectTiers(pass, 3)
			fits := b.oracle.FitsL1(pass)
			b.oracle.Store(pass, 3)
			got := b.loop(pass, 3)
			for part, want := range []fixtures.Interval{e.L1.Total, e.L2.Total, e.Hits.Total} {
				require.True(b, want.Contains(got[part]), "pass %d: part %d is %d tokens, want %s", i, part, got[part], want)
			}
			require.Equal(b, got[2], got[0]+got[1])
			if fits {
				require.Zero(b, got[1])
			}
		}
	})
}

// The numbers of -evict: a working set 1.25 times L1, and how it splits.
func TestEvictSplitsTheWarmPass(t *testing.T) {
	plan := tierPlan(t, "unique", 0)
	set, err := fixtures.CountBlocks(plan, tierBlock)
	require.NoError(t, err)
	budgets, err := fixtures.Size(set, 4*tierBlockLen, fixtures.Limits{MemoryFree: fixtures.GiB, DiskFree: fixtures.GiB}, true)
	require.NoError(t, err)
	b := newTierBench(t, int(budgets.L1Slots()), int(budgets.L2Slots()), true)
	require.False(t, b.oracle.FitsL1(plan))
	require.Equal(t, [3]int{}, b.loop(plan, 2))
	b.oracle.Store(plan, 2)
	warm := b.oracle.ExpectTiers(plan, 2)
	// 80 units into an L1 of 64: each put above 51 leaves 38, the last one too.
	require.Equal(t, fixtures.Interval{Min: 38 * tierBlock, Max: 38 * tierBlock}, warm.L1.Total)
	require.Equal(t, fixtures.Interval{Min: 42 * tierBlock, Max: 42 * tierBlock}, warm.L2.Total)
	require.Equal(t, [3]int{38 * tierBlock, 42 * tierBlock, 80 * tierBlock}, b.loop(plan, 2))
}
