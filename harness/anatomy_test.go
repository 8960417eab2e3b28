package harness

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/run"
)

func TestPrintAnatomy(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	rows := []*tableRow{
		{backend: "baseline", workload: "unique", anatomies: []run.Anatomy{
			{Requests: 1, ClientQueue: 1, Connect: 2, ServerQueue: ms(3), Prefill: ms(40), FirstChunk: 4, TTFT: 50},
			{Requests: 3, ClientQueue: 1, Connect: 2, ServerQueue: ms(7), Prefill: ms(80), FirstChunk: 0, TTFT: 90},
		}},
		{backend: "broken", workload: "unique", failure: "stalled", anatomies: []run.Anatomy{{Requests: 1}}},
		{backend: "external", workload: "unique"},
	}
	var out strings.Builder
	printAnatomy(&out, rows)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2, "%s", out.String())
	require.Equal(t, strings.Fields("# warm TTFT workload client queue connect server queue KV load prefill first chunk = TTFT load GB/s of copying"), strings.Fields(lines[0]))
	require.Equal(t, strings.Fields("# baseline unique 1.00 ms 2.00 ms 6.00 ms - 70.00 ms 1.00 ms 80.00 ms - -"), strings.Fields(lines[1]))

	out.Reset()
	rows[0].anatomies[1].LoadBytesPerSecond = ms(1e9)
	rows[0].anatomies[0].LoadBytesPerSecond = ms(1e9)
	printAnatomy(&out, rows)
	require.Regexp(t, `1\.00 +\d+%`, out.String())
	out.Reset()
	printAnatomy(&out, rows[1:])
	require.Empty(t, out.String())
}
