package recipe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// salting is a server that keeps prompts apart by their salts. Requests with another
// salt than the first one's end as others says.
type salting struct {
	own    string
	others row.Status
	asked  int
}

func (s *salting) Do(_ context.Context, r row.Request) row.Timeline {
	s.asked++
	if s.own == "" {
		s.own = r.CacheSalt
	}
	cached := 0
	if r.CacheSalt != s.own {
		return row.Timeline{Status: s.others, Err: "out of order", Usage: &row.Usage{PromptTokens: len(r.Prompt), CachedTokens: &cached}}
	}
	if s.asked > 1 {
		cached = 16
	}
	return row.Timeline{Status: row.OK, Usage: &row.Usage{PromptTokens: len(r.Prompt), CachedTokens: &cached}}
}

// A request that failed has not missed: salts are not shown to separate by it.
func TestSaltProbe(t *testing.T) {
	for _, c := range []struct {
		others row.Status
		want   string
	}{
		{row.OK, ""},
		{row.HTTPError, "a request with another cache_salt ended as http-error: out of order"},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := examiner{
				client: &salting{others: c.others}, context: 1024, patience: time.Second,
				params: fixtures.Params{Requests: 1, BlockSize: 16, Context: 1024, Vocab: 1024},
			}
			require.Equal(t, c.want, x.salts(t.Context(), 1))
		})
	}
}
