package mini_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// send posts JSON to the DaseR of a stack.
func send(t *testing.T, s *mini.Stack, path string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	response, err := http.Post(s.DaserURL()+path, "application/json", strings.NewReader(string(data)))
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(answer)
}

func upload(t *testing.T, s *mini.Stack, tokens []int32) (id string) {
	t.Helper()
	code, answer := send(t, s, "/documents", map[string]any{"title": "a", "token_ids": tokens})
	require.Equal(t, http.StatusCreated, code, answer)
	var created struct {
		ID string `json:"doc_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &created))
	return created.ID
}

// TestDocumentsThroughAStack: the prompt is the configured prefix, document,
// separator, document and the task; all but the task is reused, and the check
// finds the KV right.
func TestDocumentsThroughAStack(t *testing.T) {
	s := start(t, mini.Config{
		Row: mini.DaserChunk, BlockSize: 16, Unsafe: true, Prefix: prompt(1, 16), Separator: prompt(2, 3),
	})
	s.KVCheck().Switch(true)
	ids := []string{upload(t, s, prompt(3, 32)), upload(t, s, prompt(4, 20))}
	code, answer := send(t, s, "/infer", map[string]any{
		"doc_ids": ids, "task_token_ids": prompt(5, 7), "stream": true, "gen_params": map[string]any{"max_tokens": 4, "ignore_eos": true},
	})
	require.Equal(t, http.StatusOK, code, answer)
	require.Contains(t, answer, `"prompt_tokens":103,`)
	require.Contains(t, answer, `"cached_tokens":96}`)
	require.Contains(t, get(t, s.DaserURL()+"/debug/kvcheck"), `"on":true,"chunks":4,"tokens":96,"damaged":0`)
	require.Equal(t, 4, s.KVCheck().Report().Chunks)
}

// TestKVCheckSeesPlantedFaults: it stands outside of what damages loads.
func TestKVCheckSeesPlantedFaults(t *testing.T) {
	for _, row := range []string{mini.DaserChunk, mini.DaserPrefix} {
		for _, f := range []fault.Fault{fault.BitFlip, fault.OtherDocument} {
			t.Run(row+"/"+string(f), func(t *testing.T) {
				s := start(t, mini.Config{Row: row, BlockSize: 16, Faults: []fault.Fault{f}})
				s.KVCheck().Switch(true)
				for i := range 2 {
					complete(t, s, prompt(i, 53))
					settle(t, s)
				}
				require.Equal(t, 48, complete(t, s, prompt(1, 53)).cached())
				require.Equal(t, 1, s.KVCheck().Report().Damaged)
			})
		}
	}
}

func TestKVCheckIsNotServedUnlessUnsafe(t *testing.T) {
	s := start(t, mini.Config{Row: mini.DaserPrefix, BlockSize: 16})
	code, answer := send(t, s, "/debug/kvcheck?on=true", nil)
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, answer, "without -unsafe")
}

// TestDaserTellsItsBlockSize, that of the engine, which may not be the one
// that was asked for.
func TestDaserTellsItsBlockSize(t *testing.T) {
	for _, faults := range [][]fault.Fault{nil, {fault.BlockSizeIgnored}} {
		s := start(t, mini.Config{Row: mini.DaserPrefix, BlockSize: 32, Faults: faults})
		want := 32 / (1 + len(faults))
		require.JSONEq(t, fmt.Sprintf(`{"status":"ok","vllm":true,"block_tokens":%d}`, want), get(t, s.DaserURL()+"/health"))
	}
}

// TestTiersOfEveryStore: with room for two of three prompts in L1 the rows
// with a store still hit all, the rest in L2, and leave no file behind.
func TestTiersOfEveryStore(t *testing.T) {
	m, err := model.New(model.Nano())
	require.NoError(t, err)
	for _, row := range []string{mini.LMCache, mini.DaserChunk, mini.DaserPrefix} {
		t.Run(row, func(t *testing.T) {
			disk := t.TempDir()
			c := mini.Config{Row: row, BlockSize: 16, L1Bytes: int64(m.TokenBytes() * 16 * 8), L2Dir: disk, L2Bytes: 1 << 20, Prefix: []int32{}}
			c.Model = model.Nano()
			s, err := mini.Start(t.Context(), c)
			require.NoError(t, err)
			for i := range 3 {
				cold := complete(t, s, prompt(i, 53))
				settle(t, s)
				require.Equal(t, cold.Choices, complete(t, s, prompt(i, 53)).Choices)
			}
			for i := range 3 {
				require.Equal(t, 48, complete(t, s, prompt(i, 53)).cached())
			}
			url := s.DaserURL() + s.StoreURL()
			require.Contains(t, get(t, url+"/metrics"), `kvproof_store_loaded_bytes_total{tier="l2"}`)
			require.NoError(t, s.Close(context.WithoutCancel(t.Context())))
			left, err := os.ReadDir(disk)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestDaserStartRefuses, and leaves nothing behind.
func TestDaserStartRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	for _, test := range []struct {
		name   string
		config mini.Config
		want   string
	}{
		{"address in use", mini.Config{Row: mini.DaserChunk, DaserAddr: taken.Addr().String()}, "listening on " + taken.Addr().String()},
		{"a segment longer than the context", mini.Config{Row: mini.DaserChunk, BlockSize: 16, Separator: prompt(1, 2000)}, "prefilling a fixed segment"},
		{"L1 below a slot", mini.Config{Row: mini.DaserPrefix, L1Bytes: 1000}, "L1 of 1000 bytes: a slot of 128 tokens takes"},
		{"L1 above L2", mini.Config{Row: mini.DaserPrefix, L1Bytes: 1 << 20, L2Bytes: 1 << 19, L2Dir: t.TempDir()}, "larger than L2"},
		{"L2 nowhere", mini.Config{Row: mini.DaserPrefix, L2Bytes: 1 << 19}, "without a directory"},
		{"tiers without a store", mini.Config{Row: mini.EngineCache, L1Bytes: 1 << 20}, `row "engine-cache" has no store with tiers`},
		{"fault without DaseR", mini.Config{Row: mini.LMCache, Faults: []fault.Fault{fault.EarlyDrain}}, `no DaseR in which fault "early-drain" could be planted: it needs daser-chunk or daser-prefix`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			test.config.Model = model.Nano()
			_, err := mini.Start(t.Context(), test.config)
			require.ErrorContains(t, err, test.want)
			requireGoroutines(t, before)
		})
	}
}

// TestCloseDrainsDaser: a stream through DaseR comes to its end, and what it
// needs stays until then.
func TestCloseDrainsDaser(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := mini.Start(t.Context(), mini.Config{Row: mini.DaserChunk, BlockSize: 16, Model: model.Nano()})
	require.NoError(t, err)
	id := upload(t, s, prompt(1, 32))
	body := fmt.Sprintf(`{"doc_ids":[%q],"task":"w9","stream":true,"gen_params":{"max_tokens":400,"ignore_eos":true}}`, id)
	response, err := http.Post(s.DaserURL()+"/infer", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	first := make([]byte, 1)
	_, err = io.ReadFull(response.Body, first)
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- s.Close(context.WithoutCancel(t.Context())) }()
	rest, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
	require.NoError(t, response.Body.Close())
	require.NoError(t, <-closed)
	requireGoroutines(t, before)
}
