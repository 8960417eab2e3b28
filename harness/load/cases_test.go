package load

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// TestCoordinatedOmission is a recorded case: one request in flight at a time,
// one due every 100 ms, each answered after 400. From the send all look alike;
// only the latency from the schedule shows that the server falls behind.
func TestCoordinatedOmission(t *testing.T) {
	text, err := os.ReadFile("testdata/events-05-coordinated-omission.json")
	require.NoError(t, err)
	var recorded struct {
		Input struct {
			Schedule   []int `json:"schedule_ms"`
			Sent       []int `json:"sent_ms"`
			FirstToken []int `json:"first_token_ms"`
		}
		Expect struct {
			FromSend     []int `json:"ttft_from_send_ms"`
			FromSchedule []int `json:"ttft_from_schedule_ms"`
			Lag          []int `json:"dispatch_lag_ms"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	in := recorded.Input
	require.Len(t, in.Schedule, 4)
	start := time.Unix(0, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	milliseconds := func(d time.Duration, ok bool) int {
		require.True(t, ok)
		return int(d.Milliseconds())
	}
	for _, later := range []int{0, 1, 250} { // variants: the whole schedule moves
		var fromSend, fromSchedule, lag []int
		for i := range in.Schedule {
			timeline := row.Timeline{Scheduled: at(in.Schedule[i] + later), Sent: at(in.Sent[i] + later), FirstToken: at(in.FirstToken[i] + later)}
			fromSend = append(fromSend, milliseconds(timeline.TTFT()))
			fromSchedule = append(fromSchedule, milliseconds(timeline.ScheduledTTFT()))
			lag = append(lag, milliseconds(timeline.QueueWait()))
		}
		require.Equal(t, recorded.Expect.FromSend, fromSend)
		require.Equal(t, recorded.Expect.FromSchedule, fromSchedule)
		require.Equal(t, recorded.Expect.Lag, lag)
	}
}
