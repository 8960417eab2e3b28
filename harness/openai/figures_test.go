package openai

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/row"
	"github.com/stretchr/testify/require"
)

// chunk is an output chunk of the completions route with its ids.
func chunk(ids ...int32) string {
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
	return fmt.Sprintf(`{"choices":[{"index":0,"text":" x","token_ids":[%s]}]}`, text)
}

func usageOf(prompt, completion int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, completion)
}

const finished = `{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`

// at plays events that come 10 ms apart, the first at 10 ms; those that are
// joined by a blank line come together.
func at(events ...string) row.Timeline {
	var parts [][]byte
	for _, event := range events {
		parts = append(parts, []byte("data: "+strings.ReplaceAll(event, "\n\n", "\n\ndata: ")+"\n\n"))
	}
	return play(parts, nil, func(read int) time.Time { return nominal(10 * read) })
}

func ms(values ...float64) []time.Duration {
	var out []time.Duration
	for _, v := range values {
		out = append(out, time.Duration(v*1e6))
	}
	return out
}

func TestFigures(t *testing.T) {
	text := `{"choices":[{"index":0,"text":"x"}]}`
	tests := []struct {
		name   string
		got    row.Timeline
		tokens int
		source TokenSource
		itl    []time.Duration
		valid  bool
		tpot   float64 // ms; 0: none
		warned []row.Warning
	}{
		{
			"one token a chunk", at(chunk(1), chunk(2), chunk(3), finished, usageOf(5, 3), "[DONE]"),
			3, FromUsage, ms(10, 10), true, 10, nil,
		},
		{
			"several tokens a chunk", at(chunk(1), chunk(2, 3, 4, 5), finished, usageOf(5, 5), "[DONE]"),
			5, FromUsage, ms(2.5, 2.5, 2.5, 2.5), true, 2.5, nil,
		},
		{
			"ids without usage", at(chunk(1), chunk(2), finished, "[DONE]"),
			2, FromIDs, ms(10), true, 10,
			[]row.Warning{row.MissingUsage},
		},
		{
			"as many chunks as tokens, no ids", at(text, text, finished, usageOf(5, 2), "[DONE]"),
			2, FromUsage, ms(10), true, 10, nil,
		},
		{
			"more tokens than chunks, no ids", at(text, text, finished, usageOf(5, 3), "[DONE]"),
			3, FromUsage, nil, false, 5, nil,
		},
		{
			"text only", at(text, text, finished, "[DONE]"),
			0, Unknown, nil, false, 0,
			[]row.Warning{row.MissingUsage},
		},
		{
			"two chunks in a read", at(chunk(1), chunk(2)+"\n\n"+chunk(3), finished, usageOf(5, 3), "[DONE]"),
			3, FromUsage, ms(10, 0), false, 5,
			[]row.Warning{row.Coalesced},
		},
		{
			"all in one read", at(chunk(1) + "\n\n" + chunk(2) + "\n\n" + finished + "\n\n" + usageOf(5, 2) + "\n\n[DONE]"),
			2, FromUsage, ms(0), false, 0,
			[]row.Warning{row.Coalesced},
		},
		{
			"usage differs from the ids", at(chunk(1), chunk(2), finished, usageOf(5, 3), "[DONE]"),
			3, FromUsage, ms(10), true, 5,
			[]row.Warning{row.TokensMismatch},
		},
		{
			"one token", at(chunk(1), finished, usageOf(5, 1), "[DONE]"),
			1, FromUsage, nil, false, 0, nil,
		},
		{
			"usage without its counts", at(chunk(1), finished, `{"choices":[],"usage":{"prompt_tokens":5}}`, "[DONE]"),
			1, FromIDs, nil, false, 0,
			[]row.Warning{row.MissingUsage},
		},
		{
			"nothing at all", at(finished, usageOf(5, 0), "[DONE]"),
			0, FromUsage, nil, false, 0,
			[]row.Warning{row.NoVisibleToken},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, row.OK, tt.got.Status, tt.got.Err)
			tokens, source := OutputTokens(tt.got)
			require.Equal(t, tt.tokens, tokens)
			require.Equal(t, tt.source, source)
			latencies, valid := ITL(tt.got)
			require.Equal(t, tt.itl, latencies)
			require.Equal(t, tt.valid, valid)
			tpot, known := TPOT(tt.got)
			require.Equal(t, tt.tpot != 0, known)
			require.InDelta(t, tt.tpot, float64(tpot)/1e6, 1e-9)
			require.Equal(t, tt.warned, tt.got.Warnings)
		})
	}
}

func TestEnds(t *testing.T) {
	require.Equal(t, row.CutOff, at(chunk(1), "[DONE]").Status, "[DONE] without a finish reason is no end")
	require.Contains(t, at(chunk(1), "[DONE]").Err, "after 1 events, 1 with output, with [DONE]")
	require.Equal(t, row.CutOff, at().Status)
	require.Equal(t, row.CutOff, at("[DONE]").Status)
	got := play([][]byte{[]byte("data: " + chunk(1) + "\n\ndata: " + finished)}, nil, nominal)
	require.Equal(t, row.CutOff, got.Status, "the event with the finish reason was cut")
	require.Contains(t, got.Err, "in the middle of another")

	got = at(chunk(1), finished, "[DONE]", chunk(2))
	require.Equal(t, []int32{1}, got.Tokens, "nothing counts after [DONE]")
	require.Equal(t, nominal(30), got.End)
}

func TestChatLogprobsAndReasoning(t *testing.T) {
	got := at(
		`{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[{"token":"x","logprob":-1,"top_logprobs":[{"logprob":-2},{"logprob":null},{"logprob":-1}]}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"y","logprob":null,"top_logprobs":[]}]},"finish_reason":"stop"}]}`,
		usageOf(5, 3), "[DONE]",
	)
	require.Equal(t, row.OK, got.Status, got.Err)
	require.Equal(t, "hm", got.Reasoning)
	require.Equal(t, "x", got.Text)
	require.Equal(t, nominal(10), got.FirstToken)
	require.Equal(t, nominal(20), got.FirstContent)
	require.Equal(t, nominal(30), got.LastToken, "a logprob belongs to a token, though it decodes to nothing")
	require.Len(t, got.Logprobs, 2)
	require.Equal(t, []float64{-1, -2}, got.Logprobs[0].Top[:2])
	require.True(t, math.IsNaN(got.Logprobs[0].Top[2]), "NaN is last")
	require.True(t, math.IsNaN(got.Logprobs[1].Logprob))
}

func TestToolCallsAreJoinedByIndex(t *testing.T) {
	got := at(
		`{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"name":"b","arguments":"{"}},{"index":0,"function":{"name":"a"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1"}},{"index":1,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}]}`,
		"[DONE]",
	)
	require.Equal(t, []row.ToolCall{{Name: "a", Arguments: "1"}, {Name: "b", Arguments: "{}"}}, got.ToolCalls)
	require.Equal(t, nominal(10), got.FirstToken)
	require.True(t, got.FirstContent.IsZero())
}

// TLS lies between the transport and the stamps; they are taken all the same.
func TestOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, 1, r.ProtoMajor)
		shortAnswer(w)
	}))
	t.Cleanup(server.Close)
	client := newClient(t, Config{BaseURL: server.URL})
	client.timed.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	got := client.Do(t.Context(), shortRequest("r"))
	require.Equal(t, row.OK, got.Status, got.Err)
	require.Equal(t, []int32{9, 10}, got.Tokens)
	require.False(t, got.FirstByte.Before(got.Connected))
	require.False(t, got.FirstToken.Before(got.FirstByte))
	require.False(t, got.End.Before(got.LastToken))
	connecting, known := ConnectTime(got)
	require.True(t, known)
	require.Positive(t, connecting)
}
