package harness

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/recipe"
)

// attached is who makes rows on servers that somebody else started. It asks
// them what they serve, since prompts depend on it.
func (s *Settings) attached(wrong func(flag string, value any, format string, args ...any)) (recipe.Builder, recipe.Model) {
	a, err := recipe.ParseAttach(s.Attach)
	if err != nil {
		wrong("attach", s.Attach, "%w", err)
		return a, recipe.Model{}
	}
	if a.Header, err = parseHeaders(os.Getenv(headersVariable)); err != nil {
		wrong("attach", s.Attach, "%s: %w", headersVariable, err)
		return a, recipe.Model{}
	}
	a.Family, a.AllowReset, a.Strict, a.APIKey = s.Engine, s.AllowReset, s.Strict, os.Getenv("OPENAI_API_KEY")
	if s.RowFile != "" {
		wrong("rowfile", s.RowFile, "a row of a file is started by the suite; it cannot be attached to")
	}
	if !s.given()["backend"] || s.Backend == "all" || strings.Contains(s.Backend, ",") {
		wrong("backend", s.Backend, "say which one row the server of -attach is, e.g. -backend=engine-cache: its law and its counters depend on it")
	}
	if s.Evict {
		wrong("evict", s.Evict, "the tiers of somebody else's server are not ours to size")
	}
	if s.Nonce == "" && !s.AllowReset { // nobody else has sent it before
		s.Nonce = rand.Text()
	}
	model, err := a.Look(context.Background())
	if err != nil {
		wrong("attach", s.Attach, "%w", err)
		return a, recipe.Model{}
	}
	if s.given()["model"] {
		known, err := recipe.RealModel(s.Model)
		if err != nil {
			wrong("model", s.Model, "%w", err)
		}
		model.Dir, model.Vocab, model.Facts, model.Sizeless = known.Dir, known.Vocab, known.Facts, false
	} else {
		s.Model = model.Name
	}
	s.fitInput(model)
	a.Model = model
	return a, model
}

// headersVariable holds headers for an attached engine. Like the key they come
// from the environment, because the command line ends up in artifacts.
const headersVariable = "KVPROOF_ATTACH_HEADERS"

// parseHeaders reads "Name: value, Name: value".
func parseHeaders(text string) (http.Header, error) {
	header := make(http.Header)
	if text == "" {
		return header, nil
	}
	for i, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("header %d: want Name: value", i+1)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	return header, nil
}

// burden is what a run asks of a server that is not ours.
func burden(plans map[string]fixtures.Plan) (requests, tokens int) {
	for _, plan := range plans {
		requests += 2 * len(plan.Requests)
		tokens += 2 * plan.PromptTokens()
	}
	return requests, tokens
}
