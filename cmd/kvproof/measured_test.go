package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a run does not know is left out of the table, and is no 0; what it knows
// to be 0 is one.
func TestTableOfClients(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	var b strings.Builder
	table(&b, []measured{
		{Client: "ours", Streams: 1, ITLP50: ms(5.2)},
		{Client: "ours", Streams: 1},
		{Client: "ours", Streams: 1, ITLP50: ms(5)},
		{Client: "ours", Streams: 2},
		{Client: "theirs", Streams: 1, ITLP50: ms(0)},
	}, []string{"ours", "theirs"})
	for _, want := range []string{
		"| 1 | ours | +0.00 (+0.00 to +0.00) | +0.0 (+0.0 to +0.0) | 5.0 (5.0 to 5.2), 2 of 3 runs |",
		"| 1 | theirs | +0.00 (+0.00 to +0.00) | +0.0 (+0.0 to +0.0) | 0.0 (0.0 to 0.0) |",
		"| 2 | ours | +0.00 (+0.00 to +0.00) | +0.0 (+0.0 to +0.0) | - |",
	} {
		require.Contains(t, b.String(), want)
	}
}
