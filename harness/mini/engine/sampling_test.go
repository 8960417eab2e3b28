package engine

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// whole asks without streaming.
var whole = object{"stream": false, "stream_options": nil}

// A stream joined is the answer without streaming.
func TestStreamEqualsWhole(t *testing.T) {
	e := newEngine(t, nil)
	for name, more := range map[string]object{
		"greedy":      {},
		"sampled":     {"temperature": 1.5, "seed": 7},
		"stop string": {"temperature": 1.5, "seed": 7, "stop": []string{"5 w"}, "max_tokens": 200},
		"no logprobs": {"logprobs": nil},
	} {
		t.Run(name, func(t *testing.T) {
			body := ask(prompt(1, 30)).with(more)
			streamed, once := complete(t, e, body), complete(t, e, body.with(whole))
			requireSame(t, streamed, once)
			require.Equal(t, streamed, once)
		})
	}
}

func TestStopTokens(t *testing.T) {
	e := newEngine(t, nil)
	free := complete(t, e, ask(prompt(2, 30)))
	third := free.tokens[2]
	require.NotContains(t, free.tokens[:2], third)
	body := ask(prompt(2, 30)).with(object{"stop_token_ids": []int32{third, 1 << 20, -3}})
	got := complete(t, e, body)
	require.Equal(t, free.tokens[:3], got.tokens, "the token that stops is returned")
	require.Equal(t, "stop", got.finish)
	require.InDelta(t, float64(third), got.stop, 0)
	require.Equal(t, e.tokenizer.Delta(free.tokens[0], true)+e.tokenizer.Delta(free.tokens[1], true), got.text, "but is no part of the text")
	require.InDelta(t, 1, series(t, e, "vllm:request_success_total", "finished_reason", "stop"), 0)

	later := complete(t, e, body.with(object{"min_tokens": 5}))
	require.Len(t, later.tokens, 8)
	require.Equal(t, "length", later.finish)
	require.NotContains(t, later.tokens[:5], third, "what would stop is not sampled before min_tokens")
}

func TestEOS(t *testing.T) {
	e := newEngine(t, nil)
	// Some sampled sequence runs into EOS; which one is found here.
	body := object{"model": "tiny", "prompt": prompt(3, 20), "max_tokens": 300, "temperature": 5, "ignore_eos": true, "return_token_ids": true}
	seed, at := -1, -1
	for s := range 50 {
		if at = slices.Index(complete(t, e, body.with(object{"seed": s})).tokens, 2); at >= 0 {
			seed = s
			break
		}
	}
	require.GreaterOrEqual(t, seed, 0, "no seed gives EOS")
	body = body.with(object{"seed": seed})
	ignored := complete(t, e, body)
	require.Len(t, ignored.tokens, 300)
	require.Equal(t, "length", ignored.finish)

	stopped := complete(t, e, body.with(object{"ignore_eos": false}))
	require.Equal(t, ignored.tokens[:at+1], stopped.tokens)
	require.Equal(t, "stop", stopped.finish)
	require.Nil(t, stopped.stop)
	require.NotContains(t, stopped.text, "</s>")

	later := complete(t, e, body.with(object{"ignore_eos": false, "min_tokens": at + 2}))
	require.Greater(t, len(later.tokens), at+1)

	shown := complete(t, e, body.with(object{"skip_special_tokens": false}))
	require.Contains(t, shown.text, "</s>")
	require.NotContains(t, ignored.text, "</s>")
	require.Equal(t, shown.tokens, e.tokenizer.Encode(shown.text))
}

func TestSeeds(t *testing.T) {
	e := newEngine(t, nil)
	tokens := func(more object) []int32 {
		return complete(t, e, ask(prompt(4, 30)).with(object{"max_tokens": 32, "temperature": 1}).with(more)).tokens
	}
	require.Equal(t, tokens(object{"seed": 1}), tokens(object{"seed": 1}))
	require.NotEqual(t, tokens(object{"seed": 1}), tokens(object{"seed": 2}))
	require.NotEqual(t, tokens(object{"seed": 1, "temperature": 0}), tokens(object{"seed": 1}))
	require.NotEqual(t, tokens(nil), tokens(nil), "without a seed, each request has its own")
}

func TestDefaults(t *testing.T) {
	e := newEngine(t, nil)
	got := complete(t, e, object{"prompt": "w10 w11", "ignore_eos": true, "return_token_ids": true})
	require.Len(t, got.tokens, 16)
	require.Equal(t, 2, got.prompt)
	require.Equal(t, "length", got.finish)
}

// Prompt and output beyond the context: HTTP 200, silently fewer tokens.
func TestOutputIsCutAtTheContext(t *testing.T) {
	e := newEngine(t, nil)
	got := complete(t, e, ask(prompt(5, 1020)).with(object{"max_tokens": 200}))
	require.Len(t, got.tokens, 4)
	require.Equal(t, "length", got.finish)
	got = complete(t, e, ask(prompt(5, 1023)))
	require.Len(t, got.tokens, 1)
}

func TestPromptForms(t *testing.T) {
	e := newEngine(t, nil)
	one := complete(t, e, ask(nil).with(object{"prompt": "w10 w11"}))
	require.Equal(t, one, complete(t, e, ask([]int32{10, 11})))
	require.Equal(t, one, complete(t, e, ask(nil).with(object{"prompt": []string{"w10 w11"}})))
	require.Equal(t, one, complete(t, e, ask(nil).with(object{"prompt": [][]int32{{10, 11}}})))
}

// Several prompts are several choices; usage adds up their tokens but shows
// one prompt's cached tokens, as observed.
func TestSeveralPrompts(t *testing.T) {
	e := newEngine(t, func(c *Config) { c.PrefixCaching, c.MaxSeqs = true, 1 })
	long, short := prompt(6, 100), prompt(7, 50)
	want := []result{complete(t, e, ask(long)), complete(t, e, ask(short))}
	both := ask(nil).with(object{"prompt": [][]int32{long, short}})

	w := post(t, e, "/v1/completions", both)
	payloads := events(t, w.Body)
	byChoice := map[bool][]string{}
	for _, p := range payloads[:len(payloads)-2] {
		second := strings.Contains(p, `"choices":[{"index":1`)
		byChoice[second] = append(byChoice[second], p)
	}
	requireSame(t, want[0], read(t, byChoice[false]))
	requireSame(t, want[1], read(t, byChoice[true]))
	require.Contains(t, payloads[len(payloads)-2], `"usage":{"prompt_tokens":150,"total_tokens":166,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":96}}`)

	body := post(t, e, "/v1/completions", both.with(whole)).Body.String()
	require.Contains(t, body, `"index":1`)
	require.Contains(t, body, `"prompt_tokens":150`)
	require.Contains(t, body, `"cached_tokens":48`, "the last prompt's")
}

func TestRefusals(t *testing.T) {
	e := newEngine(t, nil)
	for _, c := range []struct {
		name  string
		body  object
		param string
		says  string
	}{
		{"two choices", object{"n": 2}, "n", "n must be 1"},
		{"echo", object{"echo": true}, "echo", "not supported"},
		{"suffix", object{"suffix": "w9"}, "suffix", "not currently supported"},
		{"prompt logprobs", object{"prompt_logprobs": 1, "stream": false, "stream_options": nil}, "prompt_logprobs", "not supported"},
		{"stream options alone", object{"stream": false}, "stream_options", "stream=True"},
		{"cold below zero", object{"temperature": -1}, "temperature", "non-negative"},
		{"too few allowed", object{"min_tokens": 9}, "min_tokens", "max_tokens=8"},
		{"negative minimum", object{"min_tokens": -1}, "min_tokens", "greater than or equal to 0"},
		{"negative logprobs", object{"logprobs": -1}, "logprobs", "non-negative"},
		{"empty stop", object{"stop": []string{""}}, "stop", "empty string"},
		{"long salt", object{"cache_salt": strings.Repeat("s", 129)}, "cache_salt", "at most 128"},
		{"number as stop", object{"stop": 5}, "body.stop", "list of strings"},
		{"float as int", object{"max_tokens": 1.5}, "body.max_tokens", "fractional part"},
		{"text as float", object{"temperature": "hot"}, "body.temperature", "valid number"},
		{"text as bool", object{"stream": "maybe"}, "body.stream", "valid boolean"},
		{"number as text", object{"cache_salt": 5}, "body.cache_salt", "valid string"},
		{"bad prompt", object{"prompt": object{}}, "body.prompt", "list of token ids"},
		{"fractional ids", object{"prompt": []float64{1.5}}, "body.prompt", "list of token ids"},
		{"ids past int32", object{"prompt": []int64{1 << 40}}, "body.prompt", "list of token ids"},
		{"list as options", object{"stream_options": []int{}}, "body.stream_options", "dictionary"},
		{"negative id", object{"prompt": []int{-1}}, "", "out of vocabulary"},
		{"no prompt", object{"prompt": nil}, "", "at least one prompt"},
		{"empty text", object{"prompt": ""}, "", "cannot be empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := post(t, e, "/v1/completions", ask(prompt(1, 5)).with(c.body))
			require.Equal(t, http.StatusBadRequest, w.Code)
			var got struct{ Error apiError }
			unmarshal(t, w.Body.Bytes(), &got)
			require.Contains(t, got.Error.Message, c.says)
			require.Equal(t, http.StatusBadRequest, got.Error.Code)
			if c.param == "" {
				require.Nil(t, got.Error.Param)
				return
			}
			require.Equal(t, c.param, *got.Error.Param)
		})
	}
	require.Zero(t, series(t, e, "vllm:prefix_cache_queries_total"), "nothing ran")
	require.Equal(t, "application/json", post(t, e, "/v1/completions", object{"prompt": 1}).Header().Get("Content-Type"))
}

// Numbers that are written as text are numbers, as Python's validator has it.
func TestLaxNumbers(t *testing.T) {
	got := complete(t, newEngine(t, nil), ask(prompt(1, 5)).with(object{"max_tokens": "3", "temperature": "0", "logprobs": 1.0}))
	require.Len(t, got.tokens, 3)
	require.Len(t, got.logprobs, 3)
}

func TestBadConfigs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"no model", func(c *Config) { c.Model = nil }, "no model"},
		{"block size", func(c *Config) { c.BlockSize = 0 }, "block size 0"},
		{"sequences", func(c *Config) { c.MaxSeqs = 0 }, "0 running sequences"},
		{"pool", func(c *Config) { c.NumBlocks = 63 }, "needs 64"},
		{"chunk", func(c *Config) { c.Store = newMemStore(24, 16) }, "chunks of 24 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Model: nano(), BlockSize: 16, NumBlocks: 64, MaxSeqs: 1}
			c.change(&config)
			_, err := New(config)
			require.ErrorContains(t, err, c.says)
		})
	}
}
