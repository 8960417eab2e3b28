package recipe

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// A sacrifice tells when stores can be read where no status does: a prompt that
// is stored after them hits.
type sacrifice struct {
	client   row.Client
	params   fixtures.Params
	patience time.Duration
}

// sacrificePatience is how long a prompt may take to hit. What is not readable
// by then shows as hits that are missing. A server that others use may be busy
// with them for ever.
const (
	sacrificePatience = 20 * time.Second
	sharedPatience    = 5 * time.Second
)

func newSacrifice(client row.Client, e Endpoints, env row.Env) sacrifice {
	s := sacrifice{client: client, patience: sacrificePatience}
	if e.Shared {
		s.patience = sharedPatience
	}
	s.params = fixtures.Params{Requests: 1, BlockSize: env.BlockSize, Context: e.Context, Vocab: e.Vocab}
	return s
}

// wait sends a prompt that nobody has sent and asks it again until it hits, or
// patience is at an end. That shows no more than that stores end: the server may
// have taken this one before others, which is why numbers behind it are observed.
func (s sacrifice) wait(ctx context.Context) error {
	s.params.Nonce = rand.Text()
	request := row.Request{ID: "settle", Prompt: fixtures.Sacrificial(s.params), MaxTokens: 1, IgnoreEOS: true}
	waiting, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for asked := 0; ; asked++ {
		t := s.client.Do(waiting, request)
		cached, _ := t.Cached()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case t.Status != row.OK && waiting.Err() == nil:
			return fmt.Errorf("a sacrificial prompt, asked for the %d. time, ended as %s: %s", asked+1, t.Status, t.Err)
		case cached > 0 || pause(waiting, askEvery) != nil:
			return ctx.Err()
		}
	}
}
