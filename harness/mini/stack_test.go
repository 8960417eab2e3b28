package mini_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// How long a condition may take to become true, and how often it is looked at.
const (
	waitLimit = 20 * time.Second
	poll      = time.Millisecond
)

func start(t *testing.T, c mini.Config) *mini.Stack {
	t.Helper()
	c.Model = model.Nano()
	s, err := mini.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitLimit)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// An answer is what a test reads of a completion.
type answer struct {
	Choices []struct {
		TokenIDs []int32 `json:"token_ids"`
		Logprobs struct {
			TokenLogprobs []*float64 `json:"token_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage struct {
		PromptTokens  int `json:"prompt_tokens"`
		PromptDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

func (a answer) cached() int { return a.Usage.PromptDetails.CachedTokens }

func complete(t *testing.T, s *mini.Stack, prompt []int32) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": s.ModelName(), "prompt": prompt, "max_tokens": 16, "temperature": 0,
		"ignore_eos": true, "logprobs": 1, "return_token_ids": true,
	})
	require.NoError(t, err)
	response, err := http.Post(s.EngineURL()+"/v1/completions", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	var a answer
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, string(data))
	require.NoError(t, json.Unmarshal(data, &a))
	require.Len(t, a.Choices, 1)
	require.Len(t, a.Choices[0].TokenIDs, 16)
	return a
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, string(data))
	return string(data)
}

// settle waits until the store has written what it acknowledged.
func settle(t *testing.T, s *mini.Stack) {
	t.Helper()
	if s.DaserURL() != "" {
		code, body := post(t, s.DaserURL()+"/drain")
		require.Equal(t, http.StatusOK, code, body)
	}
	if s.StoreURL() == "" {
		return
	}
	require.Eventually(t, func() bool {
		status := get(t, s.StoreURL()+"/status")
		return strings.Contains(status, `"pending_keys_count":0,"in_flight_task_count":0`)
	}, waitLimit, poll)
}

// prompt returns n token ids that depend on seed.
func prompt(seed, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(8 + (i*i*31+i*7+seed*101+seed*i)%1000)
	}
	return tokens
}

func TestRowsHitByTheirLaws(t *testing.T) {
	for _, row := range mini.Rows() {
		for _, b := range []int{16, 32} {
			t.Run(fmt.Sprintf("%s/block=%d", row, b), func(t *testing.T) {
				s := start(t, mini.Config{Row: row, BlockSize: b})
				for n, length := range []int{1, b - 1, b, b + 1, 2 * b, 3*b + 5} {
					p := prompt(n, length)
					cold := complete(t, s, p)
					settle(t, s)
					warm := complete(t, s, p)
					require.Zero(t, cold.cached())
					require.Equal(t, cold.Choices, warm.Choices, "same tokens and logprobs")
					require.Equal(t, length, warm.Usage.PromptTokens)
					want := map[string]int{
						mini.Baseline:    0,
						mini.EngineCache: (length - 1) / b * b,
						mini.LMCache:     min(length/b*b, length-1),
						mini.DaserPrefix: min(length/b*b, length-1),
						mini.DaserChunk:  min(length/b*b, length-1), // the prompt is its own only document
					}[row]
					require.Equal(t, want, warm.cached(), "P=%d", length)
				}
			})
		}
	}
}

// Every server of a stack tells the block size it was started with.
func TestBlockSizeReachesEveryServer(t *testing.T) {
	size := regexp.MustCompile(`vllm:cache_config_info\{[^}]*[{,]block_size="(\d+)"`)
	for _, b := range []int{16, 32, 64, 128, 15} {
		for _, faults := range [][]fault.Fault{nil, {fault.BlockSizeIgnored}} {
			t.Run(fmt.Sprint(b, faults), func(t *testing.T) {
				s := start(t, mini.Config{Row: mini.LMCache, BlockSize: b, Faults: faults})
				engine, store := b, b
				if faults != nil {
					engine = b / 2
					if b%2 == 1 {
						engine, store = 2*b, 2*b
					}
				}
				require.Equal(t, fmt.Sprint(engine), size.FindStringSubmatch(get(t, s.EngineURL()+"/metrics"))[1])
				require.Contains(t, get(t, s.StoreURL()+"/status"), fmt.Sprintf(`"chunk_size":%d,`, store))
				complete(t, s, prompt(1, 2*b+1))
				settle(t, s)
				require.Equal(t, 2*b/store*store, complete(t, s, prompt(1, 2*b+1)).cached())
			})
		}
	}
}

func TestStartRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	for _, test := range []struct {
		name   string
		config mini.Config
		want   string
	}{
		{"no row", mini.Config{}, `row "" is not known to the miniature stack; there are baseline, engine-cache, lmcache, daser-chunk, daser-prefix`},
		{"unknown row", mini.Config{Row: "vllm"}, `row "vllm" is not known`},
		{"block size", mini.Config{Row: mini.Baseline, BlockSize: -1}, "block size -1"},
		{"block beyond the context", mini.Config{Row: mini.Baseline, BlockSize: 1025}, "block size 1025: must be at most the model's context of 1024 tokens"},
		{"sequences", mini.Config{Row: mini.Baseline, MaxSeqs: -1}, "-1 running sequences"},
		{"capacity", mini.Config{Row: mini.Baseline, L1Bytes: -1}, "-1 and 0 bytes"},
		{"fault without a store", mini.Config{Row: mini.Baseline, Faults: []fault.Fault{fault.Stall, fault.BitFlip}}, `no store in which fault "bit-flip" could be planted`},
		{"unsafe without a store", mini.Config{Row: mini.EngineCache, Unsafe: true}, "no store whose bytes could be damaged"},
		{"unknown fault", mini.Config{Row: mini.LMCache, Faults: []fault.Fault{"nope"}}, `fault "nope" is not known`},
		{"model", mini.Config{Row: mini.Baseline, BlockSize: 1, Model: model.Config{Layers: 1, Context: 1}}, "Hidden is 0"},
		{"address in use", mini.Config{Row: mini.Baseline, Addr: taken.Addr().String()}, "listening on " + taken.Addr().String()},
		{"store address in use", mini.Config{Row: mini.LMCache, StoreAddr: taken.Addr().String()}, "listening on " + taken.Addr().String()},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			if test.config.Model == (model.Config{}) {
				test.config.Model = model.Nano()
			}
			_, err := mini.Start(t.Context(), test.config)
			require.ErrorContains(t, err, test.want)
			requireGoroutines(t, before)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = mini.Start(ctx, mini.Config{Row: mini.Baseline, Model: model.Nano()})
	require.ErrorIs(t, err, context.Canceled)
}

// requireGoroutines waits until no more goroutines run than before.
func requireGoroutines(t *testing.T, before int) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(waitLimit); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
