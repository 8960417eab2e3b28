package run

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// TestDeliveredLoadCase is a recorded case: a pool that holds 100 connections
// where 128 were asked for.
func TestDeliveredLoadCase(t *testing.T) {
	text, err := os.ReadFile("testdata/events-06-delivered-load.json")
	require.NoError(t, err)
	var recorded struct {
		Input struct {
			Configured int   `json:"configured_concurrency"`
			InFlight   []int `json:"in_flight_seen_by_server"`
		}
		Expect struct {
			Valid     bool `json:"cell_valid"`
			Delivered int  `json:"delivered"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	const round = 10 * time.Millisecond
	var timelines []row.Timeline
	start := time.Unix(0, 0)
	for i, n := range recorded.Input.InFlight {
		for range n {
			begin := start.Add(time.Duration(i) * round)
			timelines = append(timelines, row.Timeline{Status: row.OK, Sent: start, Connected: begin, End: begin.Add(round)})
		}
	}
	elapsed := time.Duration(len(recorded.Input.InFlight)) * round
	found := delivered("warm", timelines, elapsed, recorded.Input.Configured)
	require.Equal(t, recorded.Expect.Valid, len(found) == 0)
	require.Equal(t, row.LoadNotDelivered, found[0].Code)
	require.Contains(t, found[0].Evidence, "at most 100 requests were with the server at one time, the plan asks for 128")
	require.Equal(t, 100, recorded.Expect.Delivered)

	require.Empty(t, delivered("warm", timelines, elapsed, recorded.Expect.Delivered), "what was delivered, asked for")
	require.Empty(t, delivered("warm", timelines, 2*elapsed, recorded.Input.Configured), "connections that were idle half of the time limited nothing")
}
