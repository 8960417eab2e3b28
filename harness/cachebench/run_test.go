package cachebench

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/row"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func requireHealthy(t *testing.T, r *Result) {
	t.Helper()
	require.Empty(t, r.Findings)
	require.Empty(t, r.Unsafe)
	require.True(t, r.Valid())
	require.Zero(t, r.ChecksumBad)
	require.Positive(t, r.ChecksumOK)
}

// TestHealthy: fifty runs of twenty requests by four clients find nothing, in
// both transfers, and leave nothing behind.
func TestHealthy(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	for run := range 50 {
		config := config(t, transfers[run%2])
		config.Requests, config.Clients, config.Start = 20, 4, 100*run
		result, err := Run(t.Context(), server, config)
		require.NoError(t, err)
		requireHealthy(t, result)
		require.Equal(t, 20, result.ChecksumOK)
		require.Equal(t, 20*3*chunk, result.Hit)
	}
	left, err := shm.Own()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOperations(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	for i, op := range []string{"pair", "store", "retrieve", "mixed@0.5"} {
		for j, transfer := range transfers {
			t.Run(op+"/"+string(transfer), func(t *testing.T) {
				config := config(t, transfer)
				var err error
				config.Op, err = ParseOperation(op)
				require.NoError(t, err)
				require.Equal(t, op, config.Op.String())
				config.Requests, config.Start = 20, 1000*(2*i+j)
				config.Salt = op
				if op == "mixed@0.5" {
					config.Salt = "mixed"
				}
				result, err := Run(t.Context(), server, config)
				require.NoError(t, err)
				requireHealthy(t, result)
				stores, retrieves := len(result.Took(ColdStore)), len(result.Took(WarmRetrieve))
				switch op {
				case "pair":
					require.Equal(t, [2]int{20, 20}, [2]int{stores, retrieves})
				case "store":
					require.Equal(t, [2]int{20, 0}, [2]int{stores, retrieves})
					require.Equal(t, 2*readBack, result.ChecksumOK, "the last of each client")
				case "retrieve":
					require.Equal(t, [2]int{0, 20}, [2]int{stores, retrieves})
				default:
					require.Equal(t, 20, stores+retrieves)
					require.Positive(t, stores)
					require.Positive(t, retrieves)
				}
				require.Equal(t, len(result.Took(StoreVisible)), stores)
			})
		}
	}
}

// A prompt that is there already is no cold one, whatever it hits.
func TestColdNotCold(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	c := config(t, lmcmp.EngineDriven)
	result, err := Run(t.Context(), server, c)
	require.NoError(t, err)
	requireHealthy(t, result)
	result, err = Run(t.Context(), server, c)
	require.NoError(t, err)
	require.Equal(t, row.ColdNotCold, result.Findings[0].Code)
	require.Contains(t, result.Findings[0].Evidence, "3 of 3 chunks")
}

// Somebody else's lookups show in the counters.
func TestForeignTraffic(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	c := config(t, lmcmp.EngineDriven)
	s, err := lmcmp.ParseShape(shape)
	require.NoError(t, err)
	other, err := server.Connect(t.Context(), lmcmp.Config{Shape: s, Transfer: lmcmp.EngineDriven})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(t.Context())) }()
	lookedUp := false
	c.Progress = func(string) {
		if !lookedUp {
			lookedUp = true
			_, _, err := other.Lookup(t.Context(), lmcmp.Request{ID: "foreign", Tokens: make([]uint32, 2*chunk)})
			require.NoError(t, err)
		}
	}
	c.Clients = 1
	result, err := Run(t.Context(), server, c)
	require.NoError(t, err)
	require.Equal(t, row.ForeignTraffic, result.Findings[0].Code)
}

// A store that is evicted before it can be read is no hit, and says so.
func TestTooSmallServer(t *testing.T) {
	mini, err := lmcache.Start(t.Context(), lmcache.Config{Chunk: chunk, HTTPAddr: "127.0.0.1:0", TransferWorkers: 4, L1Bytes: 5 * 4096})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mini.Close(context.WithoutCancel(t.Context()))) })
	server, err := lmcmp.Discover(t.Context(), lmcmp.Endpoints{RPC: mini.Endpoint(), HTTP: mini.URL()}, "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	c := config(t, lmcmp.EngineDriven)
	c.Op, c.Clients, c.Patience = Operation{Kind: OpRetrieve}, 1, time.Second
	result, err := Run(t.Context(), server, c)
	require.NoError(t, err)
	require.False(t, result.Valid())
	require.NotEmpty(t, result.Findings)
}

// An interrupt lets the request finish and keeps what was measured.
func TestInterrupt(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := config(t, lmcmp.LMCacheDriven)
	c.Requests, c.Clients = 0, 2 // for ever
	matches := 0
	c.Progress = func(line string) {
		if strings.HasSuffix(line, "MATCH OK") {
			if matches++; matches == 10 {
				cancel()
			}
		}
	}
	c.Clients = 1
	result, err := Run(ctx, server, c)
	require.NoError(t, err)
	require.True(t, result.Interrupted)
	requireHealthy(t, result)
	require.GreaterOrEqual(t, len(result.Took(WarmRetrieve)), 8)
	status, err := server.Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.ReadLocks)
}

func TestRefused(t *testing.T) {
	_, server := start(t, lmcache.Config{Transfer: lmcache.LMCacheDriven})
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"short", func(c *Config) { c.Tokens = chunk - 1 }, "no whole chunk"},
		{"too many clients", func(c *Config) { c.Clients, c.Requests = 9, 9 }, "--max-gpu-workers"},
		{"fewer requests than clients", func(c *Config) { c.Requests = 1 }, "at least one each"},
		{"long", func(c *Config) { c.Tokens = 100 * chunk }, "takes 200 blocks"},
		{"rate and interval", func(c *Config) { c.Rate, c.Interval = 1, 1 }, "one of the two"},
		{"negative", func(c *Config) { c.Rate = -1 }, "negative"},
		{"block size", func(c *Config) { c.Shape[0].BlockSize = 3 }, "not a multiple of the block size 3"},
		{"a transfer that it does not do", func(c *Config) { c.Transfer = lmcmp.EngineDriven }, "--shm-name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := config(t, lmcmp.LMCacheDriven)
			c.edit(&config)
			_, err := Run(t.Context(), server, config)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, op := range []string{"", "pairs", "mixed", "mixed@", "mixed@1.5", "pair@1"} {
		_, err := ParseOperation(op)
		require.Error(t, err, op)
	}
}

// The summary has upstream's title, sections and keys.
func TestSummary(t *testing.T) {
	_, server := start(t, lmcache.Config{})
	result, err := Run(t.Context(), server, config(t, lmcmp.LMCacheDriven))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, result.WriteText(&out))
	for _, line := range []string{
		"===================== Server Bench Result ======================",
		"------------------------ Configuration -------------------------",
		"Tokens / request:                                             24",
		"--------------------------- Results ----------------------------",
		"Total requests:                                                8",
		"Pass rate (%):                                            100.00",
		"----------------------- Cold Lookup (ms) -----------------------",
		"----------------------- Cold Store (ms) ------------------------",
		"----------------------- Warm Lookup (ms) -----------------------",
		"---------------------- Warm Retrieve (ms) ----------------------",
		"count:                                                         8",
		"================================================================",
	} {
		require.Contains(t, out.String(), line+"\n")
	}
	out.Reset()
	require.NoError(t, result.WriteJSON(&out))
	var document struct {
		Title   string                    `json:"title"`
		Metrics map[string]map[string]any `json:"metrics"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &document))
	require.Equal(t, "Server Bench Result", document.Title)
	for section, keys := range map[string][]string{
		"config":        {"rpc_url", "mode", "transfer_mode", "num_tokens", "interval"},
		"results":       {"total_requests", "checksum_ok", "checksum_fail", "pass_rate", "valid", "server_reuse_safe"},
		"cold_lookup":   {"cold_lookup_count", "cold_lookup_mean", "cold_lookup_min", "cold_lookup_max", "cold_lookup_p50", "cold_lookup_p99"},
		"warm_retrieve": {"warm_retrieve_count", "warm_retrieve_p99"},
	} {
		for _, key := range keys {
			require.Contains(t, document.Metrics[section], key)
		}
	}
	out.Reset()
	require.NoError(t, result.WriteSamples(&out))
	require.Equal(t, len(result.Samples), strings.Count(out.String(), "\n"))
}

// Throughput counts the time in which an operation was under way, once.
func TestThroughput(t *testing.T) {
	r := &Result{Samples: []Sample{
		{Op: ColdStore, Start: 0, Took: 2 * time.Second, Bytes: 100},
		{Op: ColdStore, Start: time.Second, Took: 2 * time.Second, Bytes: 200},
		{Op: ColdStore, Start: 9 * time.Second, Took: time.Second, Bytes: 100},
		{Op: WarmRetrieve, Start: 5 * time.Second, Took: time.Second, Bytes: 7},
		{Op: StoreVisible, Start: 0, Took: 9 * time.Second},
	}}
	require.InDelta(t, 100, r.Throughput(ColdStore), 1e-9)
	require.InDelta(t, 7, r.Throughput(WarmRetrieve), 1e-9)
	require.Zero(t, r.Throughput(WarmLookup))
	require.InDelta(t, 4.0/5, r.Rate(), 1e-9)
}
