package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func TestDelivered(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	// spans are [connected, end] in milliseconds; all were sent at 0.
	pass := func(spans ...[2]int) (timelines []row.Timeline) {
		for _, s := range spans {
			timelines = append(timelines, row.Timeline{Status: row.OK, Sent: at(0), Connected: at(s[0]), End: at(s[1])})
		}
		return timelines
	}
	for _, test := range []struct {
		name    string
		spans   [][2]int
		elapsed int
		want    int
		limited bool
	}{
		{"two at a time", [][2]int{{0, 10}, {0, 12}, {10, 20}, {12, 22}}, 22, 2, false},
		{"one connection for two", [][2]int{{0, 10}, {10, 20}, {20, 30}, {30, 40}, {40, 50}, {50, 60}}, 60, 2, true},
		{"too few requests to tell", [][2]int{{0, 10}, {10, 20}, {20, 30}}, 30, 2, false},
		{"three for four", [][2]int{
			{0, 10}, {0, 10}, {0, 10}, {10, 20}, {10, 20}, {10, 20}, {20, 30}, {20, 30}, {20, 30}, {30, 40}, {30, 40}, {30, 40},
		}, 40, 4, true},
		{"answers faster than starts", [][2]int{{0, 1}, {5, 6}, {10, 11}}, 11, 2, false},
		{"one is all that is asked for", [][2]int{{0, 10}, {10, 20}}, 20, 1, false},
		{"nothing was sent", nil, 1, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := delivered("cold", pass(test.spans...), time.Duration(test.elapsed)*time.Millisecond, test.want)
			require.Equal(t, test.limited, len(found) > 0, "%v", found)
			for _, f := range found {
				require.Equal(t, row.LoadNotDelivered, f.Code)
			}
		})
	}
	t.Run("without the time of connecting", func(t *testing.T) {
		timelines := pass([2]int{0, 10}, [2]int{10, 20}, [2]int{20, 30}, [2]int{30, 40}, [2]int{40, 50}, [2]int{50, 60})
		for i := range timelines {
			timelines[i].Sent, timelines[i].Connected = timelines[i].Connected, time.Time{}
		}
		require.Len(t, delivered("warm", timelines, 60*time.Millisecond, 2), 1)
	})
}
