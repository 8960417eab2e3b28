package cachebench

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/row"
)

const (
	chunk = 8
	shape = "(2,128,4,2,8):float16:3"
)

var transfers = []lmcmp.Transfer{lmcmp.EngineDriven, lmcmp.LMCacheDriven}

// start serves the miniature cache server and asks it what it is.
func start(t *testing.T, config lmcache.Config) (*lmcache.Server, *lmcmp.Server) {
	t.Helper()
	config.Chunk, config.HTTPAddr, config.TransferWorkers, config.Workers = chunk, "127.0.0.1:0", 8, 8
	config.L1Bytes = 16 << 20
	mini, err := lmcache.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mini.Close(context.WithoutCancel(t.Context()))) })
	server, err := lmcmp.Discover(t.Context(), lmcmp.Endpoints{RPC: mini.Endpoint(), HTTP: mini.URL()}, "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return mini, server
}

func config(t *testing.T, transfer lmcmp.Transfer) Config {
	t.Helper()
	s, err := lmcmp.ParseShape(shape)
	require.NoError(t, err)
	return Config{Shape: s, Transfer: transfer, Tokens: 3*chunk + 1, Requests: 8, Clients: 2, Patience: 30 * time.Second}
}

// TestFaults: each fault of the server is found under its own name, in either
// transfer, and the run has no numbers.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault    lmcache.Fault
		finding  row.Code // empty: the run is valid
		evidence string   // that it contains, in engine_driven mode
		driven   string   // … in lmcache_driven mode, where that differs
		other    row.Code // the finding in that mode, where that differs
		patience time.Duration
	}{
		{fault: lmcache.CorruptByte, finding: row.KVDiffers, evidence: "worker 0, chunk 1, layer"},
		{fault: lmcache.StaleChunk, finding: row.KVDiffers, evidence: "chunk 2"},
		{fault: lmcache.SwappedChunks, finding: row.KVDiffers, evidence: "the bytes of another block of this prompt"},
		{fault: lmcache.HitWithoutData, finding: row.KVDiffers, evidence: "all zero", driven: "not written at all"},
		{fault: lmcache.SlowReply, finding: row.Stalled, evidence: "lookup (request", patience: 50 * time.Millisecond},
		{fault: lmcache.SlowReply},
		{fault: lmcache.NoReply, finding: row.Stalled, evidence: "retrieve (request", patience: 500 * time.Millisecond},
		{fault: lmcache.OutOfOrder},
		{fault: lmcache.DuplicateReply, finding: row.StrayReply, evidence: "got a second reply to its request"},
		{fault: lmcache.WrongArity, finding: row.RequestFailed, evidence: "malformed reply: a reply of 4 frames"},
		{fault: lmcache.Die, finding: row.ServerDied, evidence: "connect"},
		{fault: lmcache.Restart, finding: row.ServerDied, evidence: "the connection to the cache server was lost"},
		{fault: lmcache.UnregisterMidFlight, finding: row.Stalled, evidence: "prepare_retrieve", driven: "could not be retrieved", other: row.LoadShorterThanLookup, patience: 500 * time.Millisecond},
		{fault: lmcache.LeakedLock, finding: row.LocksLeaked, evidence: "objects are locked for readers"},
	} {
		for _, transfer := range transfers {
			t.Run(fmt.Sprintf("%s/%s/patience=%v", c.fault, transfer, c.patience), func(t *testing.T) {
				mini, server := start(t, lmcache.Config{})
				config := config(t, transfer)
				if c.patience > 0 {
					config.Patience = c.patience
				}
				if c.fault == lmcache.SlowReply { // a third of a second for each
					config.Requests = config.Clients
				}
				require.NoError(t, mini.Plant(c.fault))
				result, err := Run(t.Context(), server, config)
				require.NoError(t, err)
				if c.finding == "" {
					requireHealthy(t, result)
					return
				}
				evidence, finding := c.evidence, c.finding
				if transfer == lmcmp.LMCacheDriven && c.driven != "" {
					evidence, finding = c.driven, cmp.Or(c.other, c.finding)
				}
				require.False(t, result.Valid())
				require.NotEmpty(t, result.Findings)
				found := false
				for _, f := range result.Findings {
					found = found || f.Code == finding && contains(f.Evidence, evidence)
				}
				require.True(t, found, "want %s with %q, got %v", finding, evidence, result.Findings)
				for _, s := range result.Summary() {
					require.NotContains(t, append(Timed(), "throughput"), s.ID)
				}
			})
		}
	}
}
