package recipe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// An examiner asks an attached server a few short questions before anything is
// measured on it.
type examiner struct {
	client   row.Client
	params   fixtures.Params
	context  int
	patience time.Duration // for a prompt that is stored to hit
}

// examine says why a server cannot be measured at all, and else why requests with
// different salts may share something there; empty: they do not.
func (a Attached) examine(ctx context.Context, s spec, env row.Env) (salts string, err error) {
	client := a.client(1, lookTimeout)
	defer client.Close()
	x := examiner{
		client: client, context: a.Model.Context, patience: 5 * time.Second,
		params: fixtures.Params{Requests: 1, BlockSize: env.BlockSize, Context: a.Model.Context, Vocab: a.Model.Vocab},
	}
	cached, err := x.preflight(ctx)
	if err != nil {
		return "", err
	}
	if s.Supports(row.Reset) && a.AllowReset && !cached {
		// Releases before 0.32 leave out a 0: only an answer that hit tells.
		prompt := x.fresh()
		if _, told := x.ask(ctx, prompt, "").Cached(); !told {
			_, cached = x.ask(ctx, prompt, "").Cached()
		}
		if !cached {
			return "", errors.New("its usage does not say how many prompt tokens were cached, so that no reset could be proved: start vLLM with --enable-prompt-tokens-details, or leave -allowreset out")
		}
	}
	if s.Supports(row.Salts) {
		salts = x.salts(ctx, max(1, len(a.Metrics)))
	}
	return salts, nil
}

// fresh is a prompt that nobody has sent.
func (x *examiner) fresh() []int32 {
	x.params.Nonce = rand.Text()
	return fixtures.Sacrificial(x.params)
}

func (x *examiner) ask(ctx context.Context, prompt []int32, salt string) row.Timeline {
	return x.client.Do(ctx, row.Request{ID: "preflight", Prompt: prompt, MaxTokens: 1, IgnoreEOS: true, CacheSalt: salt})
}

// heldBack is the part of an answer's time within which all of its tokens come
// where they were held back. An engine spends most of a long answer on tokens; a
// busy client needs a while to read what came at once.
const heldBack = 4

// preflight sends prompts of token ids and reads their streams. An answer whose
// chunks all come at once may only have been quick, or this process slow to
// read; when longer ones do so again and again, they were held back.
func (x *examiner) preflight(ctx context.Context) (cached bool, err error) {
	for _, output := range []int{32, 128, 512, 512, 512} {
		prompt := x.fresh()
		request := row.Request{ID: "preflight", Prompt: prompt, MaxTokens: min(output, x.context-len(prompt)), IgnoreEOS: true}
		t := x.client.Do(ctx, request)
		switch {
		case t.HTTP == http.StatusUnauthorized || t.HTTP == http.StatusForbidden:
			return false, fmt.Errorf("it wants a key (HTTP %d): set OPENAI_API_KEY", t.HTTP)
		case t.HTTP == http.StatusNotFound || t.HTTP == http.StatusMethodNotAllowed:
			return false, fmt.Errorf("it has no /v1/completions (HTTP %d): a gateway for chats alone cannot be measured, since prompts are token ids", t.HTTP)
		case t.HTTP == http.StatusBadRequest || t.HTTP == http.StatusUnprocessableEntity:
			return false, fmt.Errorf("it refuses a prompt of token ids: %s", t.Err)
		case t.Status != row.OK:
			return false, fmt.Errorf("a request of %d tokens ended as %s: %s", request.MaxTokens, t.Status, t.Err)
		}
		_, cached = t.Cached()
		if request.MaxTokens < 2 || len(t.Chunks) > 1 && t.LastToken.Sub(t.FirstToken) > t.End.Sub(t.Sent)/heldBack {
			return cached, nil
		}
	}
	return cached, errors.New("all tokens of a long answer came at once, time after time: something between here and the engine buffers the stream, and no time to first token could be measured")
}

// askEvery is how often a server is asked whether a prompt hits by now.
const askEvery = 250 * time.Millisecond

// How often, for each replica, a prompt must hit in a row until all of them
// are taken to have it, and how many other salts must miss then.
const (
	steadyHits = 4
	otherSalts = 4
)

// salts is the paired probe: a prompt that hits under its own salt, time after
// time, must not hit under others, and still does under its own afterwards. It
// returns why a salt shows nothing; empty: it separates.
func (x *examiner) salts(ctx context.Context, replicas int) string {
	prompt, own := x.fresh(), rand.Text()
	first := x.ask(ctx, prompt, own)
	if first.Status != row.OK {
		return fmt.Sprintf("a request with cache_salt ended as %s: %s", first.Status, first.Err)
	}
	waiting, cancel := context.WithTimeout(ctx, x.patience)
	defer cancel()
	for hits := 0; hits < steadyHits*replicas; hits++ {
		if cached, _ := x.ask(waiting, prompt, own).Cached(); cached > 0 {
			continue
		}
		hits = -1
		if pause(waiting, askEvery) != nil {
			return fmt.Sprintf("a prompt was not seen to hit under its own salt within %v", x.patience)
		}
	}
	for range otherSalts * replicas {
		other := x.ask(ctx, prompt, rand.Text())
		if other.Status != row.OK { // which is no miss
			return fmt.Sprintf("a request with another cache_salt ended as %s: %s", other.Status, other.Err)
		}
		if cached, _ := other.Cached(); cached > 0 {
			return fmt.Sprintf("a prompt hit %d tokens under another salt than it was stored with", cached)
		}
	}
	last := x.ask(ctx, prompt, own)
	if last.Status != row.OK {
		return fmt.Sprintf("a request with cache_salt ended as %s: %s", last.Status, last.Err)
	}
	if cached, _ := last.Cached(); cached == 0 {
		return "a prompt was gone under its own salt, too, when it missed under others"
	}
	return ""
}
