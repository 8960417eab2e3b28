package daser

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadingAStream: what is no whole answer is an error, never half a one.
func TestReadingAStream(t *testing.T) {
	const (
		first  = `data: {"choices":[{"text":"","token_ids":[4],"finish_reason":null}]}` + "\n\n"
		second = `data: {"choices":[{"text":" w9","token_ids":[9],"finish_reason":null}]}` + "\n\n"
		last   = `data: {"choices":[{"text":" w8","token_ids":[8],"finish_reason":"length"}]}` + "\n\n"
		usage  = `data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":3}}` + "\n\n"
		done   = "data: [DONE]\n\n"
	)
	for _, test := range []struct{ name, stream, err string }{
		{"whole", first + second + last + usage + done, ""},
		{"without its end mark", first + second + last + usage, ""},
		{"no finish reason", first + second + usage + done, "ended before its answer did"},
		{"no usage", first + second + last + done, "ended before its answer did"},
		{"nothing", "", "ended before its answer did"},
		{"an error event", first + `data: {"error": {"message": "gone"}}` + "\n\n" + done, "the engine failed: gone"},
		{"no JSON", first + "data: {\n\n", "reading the engine's stream"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sum summary
			err := sum.read(strings.NewReader(test.stream), time.Now().Add(-time.Minute))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, " w9 w8", sum.Text)
			require.Equal(t, []int32{4, 9, 8}, sum.TokenIDs)
			require.Equal(t, 20, sum.Prompt)
			require.Equal(t, 3, sum.Completion)
			require.GreaterOrEqual(t, sum.LatencyMS, sum.TTFTMS)
			require.GreaterOrEqual(t, sum.TTFTMS, 60_000.0, "in milliseconds, from the call on")
		})
	}
}
