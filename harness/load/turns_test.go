package load

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// turnsOf is a plan of n requests in conversations that take turns.
func turnsOf(n, conversations int) []Turn {
	turns := make([]Turn, n)
	for i := conversations; i < n; i++ {
		turns[i] = Turn{Waits: true, Previous: i - conversations}
	}
	return turns
}

// A turn starts when the one before has ended and not earlier, with what
// Continue makes of it, however many slots are free.
func TestTurnsWaitForEachOther(t *testing.T) {
	for _, concurrency := range []int{1, 2, 16} {
		t.Run(fmt.Sprintf("%d in flight", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &server{service: constant(time.Second)}
				driver := Driver{Client: fake, Concurrency: concurrency, Turns: turnsOf(6, 2), Continue: func(i int, previous row.Timeline) (row.Request, error) {
					return row.Request{ID: fmt.Sprintf("%s, r-%02d", previous.ID, i)}, nil
				}}
				timelines, report, err := driver.Run(t.Context(), requests(6))
				require.NoError(t, err)
				for i, got := range timelines {
					if i < 2 {
						continue
					}
					before := timelines[i-2]
					require.False(t, got.Sent.Before(before.End))
					require.Equal(t, fmt.Sprintf("%s, r-%02d", before.ID, i), got.ID)
					late, ok := got.Lateness()
					require.True(t, ok)
					require.Zero(t, late, "waiting for a turn is no lateness")
				}
				want := 3 * time.Second
				if concurrency == 1 {
					want = 6 * time.Second
				}
				require.Equal(t, want, report.End.Sub(report.Start))
				require.Equal(t, min(2, concurrency), report.Peak)
			})
		})
	}
}

// What cannot go on is not sent, nor what would go on with that.
func TestTurnThatCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &server{service: constant(time.Second)}
		driver := Driver{Client: fake, Concurrency: 4, Turns: turnsOf(4, 1), Continue: func(i int, previous row.Timeline) (row.Request, error) {
			if i == 2 || previous.Status != row.OK {
				return row.Request{}, errors.New("no answer to go on with")
			}
			return row.Request{ID: "go on"}, nil
		}}
		timelines, _, err := driver.Run(t.Context(), requests(4))
		require.NoError(t, err)
		require.Equal(t, []string{"r-00", "go on"}, fake.started)
		for _, got := range timelines[2:] {
			require.Equal(t, row.Cancelled, got.Status)
			require.Equal(t, "not sent: no answer to go on with", got.Err)
		}
	})
}

func TestCancelWhileATurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fake := &server{service: constant(time.Hour)}
		began := time.Now()
		timelines, _, err := Driver{Client: fake, Turns: turnsOf(3, 1)}.Run(ctx, requests(3))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		for _, got := range timelines {
			require.Equal(t, row.Cancelled, got.Status)
		}
	})
}

func TestBadTurns(t *testing.T) {
	for _, turns := range [][]Turn{{}, {{}}, {{Waits: true}, {}}, {{}, {Waits: true, Previous: 1}}, {{}, {Waits: true, Previous: -1}}} {
		_, _, err := Driver{Client: &server{service: constant(0)}, Turns: turns}.Run(t.Context(), requests(2))
		require.Error(t, err, "%v", turns)
	}
}
