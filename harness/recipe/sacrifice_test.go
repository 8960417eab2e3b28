package recipe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// late answers a prompt with hits once it was asked often enough.
type late struct {
	hitsAfter int // requests; 0: never
	status    row.Status
	prompts   map[int]int // how often each was asked, by its first token
}

func (l *late) Do(ctx context.Context, r row.Request) row.Timeline {
	if ctx.Err() != nil {
		return row.Timeline{Status: row.Cancelled}
	}
	l.prompts[int(r.Prompt[0])]++
	cached := 0
	if l.hitsAfter > 0 && l.prompts[int(r.Prompt[0])] > l.hitsAfter {
		cached = 16
	}
	return row.Timeline{Status: l.status, Usage: &row.Usage{PromptTokens: len(r.Prompt), CachedTokens: &cached}}
}

// TestSacrifice: a prompt that nobody sent is asked until it hits, and no longer
// than patience.
func TestSacrifice(t *testing.T) {
	for _, c := range []struct {
		name  string
		late  late
		asked int
		took  time.Duration
		wrong string
	}{
		{"at once", late{hitsAfter: 1, status: row.OK}, 2, askEvery, ""},
		{"later", late{hitsAfter: 4, status: row.OK}, 5, 4 * askEvery, ""},
		{"never", late{status: row.OK}, int(sacrificePatience / askEvery), sacrificePatience, ""},
		{"no longer where others wait, too", late{status: row.OK}, int(sharedPatience / askEvery), sharedPatience, ""},
		{"a server that fails", late{status: row.HTTPError}, 1, 0, "a sacrificial prompt, asked for the 1. time, ended as http-error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.late.prompts = make(map[int]int)
				e := Endpoints{Context: 1024, Vocab: 1024, Shared: c.took == sharedPatience}
				start := time.Now()
				err := newSacrifice(&c.late, e, row.Env{BlockSize: 16}).wait(t.Context())
				if c.wrong != "" {
					require.ErrorContains(t, err, c.wrong)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.took, time.Since(start))
				require.Len(t, c.late.prompts, 1)
				for _, asked := range c.late.prompts {
					require.InDelta(t, c.asked, asked, 1)
				}
			})
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, newSacrifice(&late{prompts: map[int]int{}}, Endpoints{Context: 1024, Vocab: 1024}, row.Env{BlockSize: 16}).wait(ctx), context.Canceled)
	})
}
