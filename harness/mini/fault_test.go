package mini_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// A pair is what two prompts gave in a cold and in a warm pass.
type pair struct{ cold, warm [2]answer }

// passes sends two prompts of 3 blocks and 5 tokens cold and then, with faults
// planted, warm.
func passes(t *testing.T, s *mini.Stack, faults ...fault.Fault) (p pair) {
	t.Helper()
	for i := range p.cold {
		p.cold[i] = complete(t, s, prompt(i+1, 53))
	}
	settle(t, s)
	require.NoError(t, s.Injector().Plant(faults...))
	for i := range p.warm {
		p.warm[i] = complete(t, s, prompt(i+1, 53))
	}
	return p
}

func TestDamageInTheStoreReachesTheOutput(t *testing.T) {
	for _, f := range []fault.Fault{
		fault.BitFlip, fault.SwappedBlocks, fault.ZeroBlock, fault.TokensPermuted, fault.OtherRequest,
		fault.HitPlusOneToken, fault.HitPlusOneBlock,
	} {
		t.Run(string(f), func(t *testing.T) {
			p := passes(t, start(t, mini.Config{Row: mini.LMCache, BlockSize: 16}), f)
			require.NotEqual(t, p.cold[1].Choices[0].Logprobs, p.warm[1].Choices[0].Logprobs)
		})
	}
	t.Run("nan", func(t *testing.T) {
		p := passes(t, start(t, mini.Config{Row: mini.LMCache, BlockSize: 16}), fault.NaN)
		require.NotNil(t, p.cold[0].Choices[0].Logprobs.TokenLogprobs[0])
		require.Nil(t, p.warm[0].Choices[0].Logprobs.TokenLogprobs[0])
	})
	t.Run("none", func(t *testing.T) {
		p := passes(t, start(t, mini.Config{Row: mini.LMCache, BlockSize: 16}))
		require.Equal(t, p.cold[1].Choices, p.warm[1].Choices)
	})
}

func TestHitsThatAreReported(t *testing.T) {
	for _, test := range []struct {
		fault fault.Fault
		want  int
	}{
		{fault.HitPlusOneToken, 49},
		{fault.HitMinusOneToken, 47},
		{fault.HitPlusOneBlock, 52}, // 64 > P: all but the last token
		{fault.HitMinusOneBlock, 32},
		{fault.BitFlip, 48},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			p := passes(t, start(t, mini.Config{Row: mini.LMCache, BlockSize: 16}), test.fault)
			require.Equal(t, test.want, p.warm[0].cached())
		})
	}
	for _, test := range []struct {
		fault fault.Fault
		want  [2]int // of the two prompts
	}{
		{fault.LostStore, [2]int{0, 0}},
		{fault.LateStore, [2]int{48, 0}}, // the second one's store came last
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			p := passes(t, start(t, mini.Config{Row: mini.LMCache, BlockSize: 16, Faults: []fault.Fault{test.fault}}))
			require.Equal(t, test.want, [2]int{p.warm[0].cached(), p.warm[1].cached()})
		})
	}
}

func TestReset(t *testing.T) {
	for _, test := range []struct {
		faults []fault.Fault
		answer string
		cached int
	}{
		{nil, `{"success":true}`, 0},
		{[]fault.Fault{fault.ResetNoop}, `{"success":true}`, 48},
		{[]fault.Fault{fault.ResetFalse}, `{"success":false}`, 48},
	} {
		t.Run(fmt.Sprint(test.faults), func(t *testing.T) {
			s := start(t, mini.Config{Row: mini.LMCache, BlockSize: 16, Faults: test.faults})
			complete(t, s, prompt(1, 53))
			settle(t, s)
			code, body := post(t, s.EngineURL()+"/reset_prefix_cache?reset_external=true")
			require.Equal(t, http.StatusOK, code)
			require.Equal(t, test.answer, body)
			require.Equal(t, test.cached, complete(t, s, prompt(1, 53)).cached())
		})
	}
}

func post(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Post(url, "", nil)
	require.NoError(t, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(data)
}

func TestDebugDamagesTheStore(t *testing.T) {
	s := start(t, mini.Config{Row: mini.LMCache, BlockSize: 16, Unsafe: true})
	cold := complete(t, s, prompt(1, 53))
	settle(t, s)
	var chunks []lmcache.ChunkInfo
	require.NoError(t, json.Unmarshal([]byte(get(t, s.StoreURL()+"/debug/chunks")), &chunks))
	require.Len(t, chunks, 3)
	require.Equal(t, cold.Choices, complete(t, s, prompt(1, 53)).Choices)

	code, body := post(t, s.StoreURL()+"/debug/flip?chunk=1&offset=403")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, chunks[1].Key)
	require.NotEqual(t, cold.Choices[0].Logprobs, complete(t, s, prompt(1, 53)).Choices[0].Logprobs)

	for _, query := range []string{"", "?chunk=1", "?chunk=x&offset=0", "?chunk=3&offset=0", "?chunk=0&offset=-1"} {
		code, body = post(t, s.StoreURL()+"/debug/flip"+query)
		require.Equal(t, http.StatusBadRequest, code, query)
		require.Contains(t, body, `{"error":"`)
	}
}

func TestDebugIsRefusedUnlessUnsafe(t *testing.T) {
	s := start(t, mini.Config{Row: mini.LMCache, BlockSize: 16})
	complete(t, s, prompt(1, 53))
	settle(t, s)
	code, body := post(t, s.StoreURL()+"/debug/flip?chunk=0&offset=3")
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, "started without -unsafe")
	response, err := http.Get(s.StoreURL() + "/debug/chunks")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	require.Equal(t, 48, complete(t, s, prompt(1, 53)).cached())
}
