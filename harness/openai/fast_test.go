package openai

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireSameAsJSON checks what the fast reader accepts against encoding/json.
func requireSameAsJSON(t *testing.T, event []byte) (accepted bool) {
	t.Helper()
	var fast fastReader
	got, ok := fast.read(event)
	if !ok {
		return false
	}
	var want payload
	require.NoError(t, json.Unmarshal(event, &want), "accepted, though it is no JSON: %s", event)
	if string(want.Error) == "null" {
		want.Error = nil // which both take for no error
	}
	require.Equal(t, len(want.Choices), len(got.Choices))
	for i := range want.Choices {
		w, g := want.Choices[i], got.Choices[i]
		require.ElementsMatch(t, w.TokenIDs, g.TokenIDs)
		require.ElementsMatch(t, w.PromptIDs, g.PromptIDs)
		w.TokenIDs, g.TokenIDs, w.PromptIDs, g.PromptIDs = nil, nil, nil, nil
		require.Equal(t, w, g, "%s", event)
	}
	want.Choices, got.Choices = nil, nil
	require.Equal(t, want, got, "%s", event)
	return true
}

func TestFastReader(t *testing.T) {
	for _, test := range []struct {
		event    string
		accepted bool
	}{
		{`{"id":"c","object":"text_completion","created":1796067216,"model":"m","choices":[{"index":0,"text":" w1","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[7]}]}`, true},
		{`{ "choices" : [ { "index" : 0 , "text" : "größe 漢字" , "token_ids" : [ 1 , 2147483647 , 0 ] , "finish_reason" : "length" } ] , "usage" : null } `, true},
		{`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, true},
		{`{"choices":[{"index":0,"delta":{"content":null},"finish_reason":"stop"}]}`, true},
		{`{"choices":[],"object":"x","error":null}`, true},
		{`{"choices":[{"index":1,"text":"a choice too many","prompt_token_ids":[3,4],"token_ids":null}]}`, true},
		{`{}`, true},
		{`{"created":123456789012345678,"ok":true,"not":false}`, true},
		{`{"choices":[{"text":"an \"escape\""}]}`, false},
		{`{"choices":[{"text":"` + "\xff" + `"}]}`, false},
		{`{"choices":[{"text":"` + "\n" + `"}]}`, false},
		{`{"choices":[{"token_ids":[2147483648]}]}`, false},
		{`{"choices":[{"token_ids":[-1]}]}`, false},
		{`{"choices":[{"token_ids":[01]}]}`, false},
		{`{"choices":[{"token_ids":[1.5]}]}`, false},
		{`{"choices":[{"token_ids":[1,]}]}`, false},
		{`{"choices":[{"text":"a","text":"b"}]}`, false},
		{`{"Choices":[{"text":"a"}]}`, false},
		{`{"choices":[{"logprobs":{"token_logprobs":[-0.5]}}]}`, false},
		{`{"choices":[{"delta":{"tool_calls":[]}}]}`, false},
		{`{"choices":[],"usage":{"prompt_tokens":1}}`, false},
		{`{"choices":[{"text":"a"},{"text":"b"}]}`, false},
		{`{"error":{"message":"no"}}`, false},
		{`{"choices":[]} {}`, false},
		{`{"choices":[]`, false},
		{`[]`, false},
		{``, false},
	} {
		require.Equal(t, test.accepted, requireSameAsJSON(t, []byte(test.event)), "%s", test.event)
	}
}

// Of what real servers sent, nearly all is read the fast way, and all of that as
// encoding/json reads it.
func TestFastReaderOnCaptures(t *testing.T) {
	accepted, events := 0, 0
	paths, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a directory
		}
		for line := range strings.Lines(string(text)) {
			data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data: ")
			if !ok || !strings.Contains(data, `"choices":[{`) || strings.Contains(data, `"logprobs":{`) || strings.Contains(data, `"tool_calls"`) {
				continue
			}
			events++
			if requireSameAsJSON(t, []byte(data)) {
				accepted++
			}
		}
	}
	t.Logf("%d of %d events", accepted, events)
	require.Positive(t, events)
	require.Greater(t, accepted*2, events, "those with usage in each chunk are rare")
}

func FuzzFastReader(f *testing.F) {
	for _, seed := range []string{
		`{"id":"c","created":1,"choices":[{"index":0,"text":" w1","logprobs":null,"finish_reason":null,"token_ids":[7,8]}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"é"},"finish_reason":"stop"}]}`,
		`{"choices":[],"object":"error","error":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, event []byte) { requireSameAsJSON(t, event) })
}
