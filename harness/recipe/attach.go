package recipe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// Attached is a row's services that somebody else has started, and may be using.
// Unless AllowReset, nothing of theirs is emptied: cold comes from content that
// was never sent, hits have no lower bound, and the numbers are observed at best.
type Attached struct {
	Engine     string   // base URL, with a path prefix where there is one
	Backend    string   // of the cache server; empty: it cannot be reached
	Metrics    []string // pages of counters, one for each replica; none: the engine's /metrics
	Family     string   // whose rows these are: one of Engines
	APIKey     string   // sent to the engine
	Header     http.Header
	AllowReset bool
	Strict     bool  // somebody says that equal inputs give equal bits there
	Model      Model // as Look found it
}

// ParseAttach reads an -attach value: engine=URL, and at will lmcache=URL or
// daser=URL, and metrics=URL once for each replica.
func ParseAttach(text string) (Attached, error) {
	var a Attached
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		u, err := url.Parse(value)
		switch {
		case err != nil:
			return a, fmt.Errorf("%s: %w", name, err)
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return a, fmt.Errorf("%s=%s: want a URL such as https://host:8000/prefix", name, value)
		case u.User != nil:
			return a, fmt.Errorf("%s: no user or password in a URL, which ends up in artifacts; a key is taken from OPENAI_API_KEY", name)
		}
		if name != "metrics" && (u.RawQuery != "" || u.Fragment != "") {
			return a, fmt.Errorf("%s=%s: no query in the base of other URLs; what has to go with each request is a header", name, u.Scheme+"://"+u.Host+u.Path)
		}
		value = strings.TrimRight(value, "/")
		switch {
		case name == "engine" && a.Engine == "":
			a.Engine = value
		case (name == "lmcache" || name == "daser") && a.Backend == "":
			a.Backend = value
		case name == "metrics":
			a.Metrics = append(a.Metrics, value)
		case slices.Contains([]string{"engine", "lmcache", "daser"}, name):
			return a, fmt.Errorf("%s is given twice, or beside another cache server", name)
		default:
			return a, fmt.Errorf("unknown service %q: there are engine, lmcache, daser, metrics", name)
		}
	}
	if a.Engine == "" {
		return a, errors.New("want engine=URL")
	}
	return a, nil
}

// vocabulary are the ids that prompts are made of where nobody knows the
// model's: every tokenizer in use has as many, and has its special ones elsewhere.
const vocabulary = 1024

// lookTimeout bounds what is asked of an attached server before anything runs.
const lookTimeout = 20 * time.Second

func (a Attached) client(concurrency int, stall time.Duration) *openai.Client {
	return openai.New(openai.Config{
		BaseURL: a.Engine, Model: a.Model.Name, Concurrency: concurrency, Stall: stall, APIKey: a.APIKey, Header: a.Header,
	})
}

// Look asks the engine what it serves.
func (a Attached) Look(ctx context.Context) (Model, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client := a.client(1, lookTimeout)
	defer client.Close()
	models, err := client.Models(ctx)
	if err != nil {
		return Model{}, fmt.Errorf("asking what is served: %w", err)
	}
	if len(models) == 0 {
		return Model{}, errors.New("GET /v1/models names no model")
	}
	m := Model{Name: models[0].ID, Context: models[0].MaxModelLen, Vocab: vocabulary, Sizeless: true, Facts: ModelFile{}.model().Facts}
	if m.Context == 0 {
		m.Context = 4096
	}
	return m, nil
}

func (a Attached) names() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		_, err := a.spec(name)
		return err != nil
	})
}

// spec is the row's, of the real engine where it has one.
func (a Attached) spec(name string) (spec, error) {
	f, ok, err := builtIn(a.Family, name)
	switch {
	case err != nil:
		return spec{}, err
	case ok && f.Cold.How != "files":
		return f.spec(), nil
	case !ok && specs[name].name != "":
		return specs[name], nil
	}
	return spec{}, fmt.Errorf("row %s cannot be attached to: the files of its engine are out of reach", name)
}

func (a Attached) build(name string) (row.Row, error) {
	s, err := a.spec(name)
	if err != nil {
		return nil, err
	}
	s.exact = false // who knows how its threads are pinned
	if !a.AllowReset {
		s.features = slices.DeleteFunc(slices.Clone(s.features), func(f row.Feature) bool { return f == row.Reset })
		s.cold = "content never sent before; nothing of somebody else's server is emptied without -allowreset"
	}
	return remoteRow{spec: s, attached: a}, nil
}

// remoteRow is a spec on an attached server.
type remoteRow struct {
	spec
	attached Attached
}

// Start checks that the server can be measured at all, and assembles.
func (r remoteRow) Start(ctx context.Context, env row.Env) (*row.Server, error) {
	a := r.attached
	looking, cancel := context.WithTimeout(ctx, 3*lookTimeout)
	defer cancel()
	if err := a.preflight(looking, env); err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", a.Engine, err)
	}
	e := Endpoints{
		Engine: a.Engine, Backend: a.Backend, Replicas: a.Metrics, Model: a.Model.Name, Context: a.Model.Context, Vocab: a.Model.Vocab,
		APIKey: a.APIKey, Header: a.Header, Shared: !a.AllowReset,
		Facts: map[string]string{"stack": string(Attach), "model": a.Model.Name},
	}
	if env.Context > 0 {
		e.Context = env.Context
	}
	client := a.client(1, lookTimeout)
	defer client.Close()
	if version, err := client.Version(looking); err == nil { // a gateway need not have it
		e.Facts["engine"] = version
	}
	pages := e.Replicas
	if len(pages) == 0 {
		pages = []string{a.Engine + "/metrics"}
	}
	admin := &http.Client{Timeout: adminTimeout, Transport: withHeader{a.Engine, a.APIKey, a.Header}}
	snapshot, err := newReplicas(engineProbe, pages, admin).Snapshot(looking)
	switch _, told := probe.BlockSize(snapshot); {
	case err != nil:
		e.Blind, e.Blockless, e.Facts["counters"] = true, true, err.Error()
	case !told:
		e.Blockless = true
	}
	if a.Strict && a.Family == "vllm" {
		e.Facts[batchInvariantFact] = batchInvariant(looking, a.Engine, admin)
	}
	return r.assemble(e, env), nil
}

// heldBack is the part of an answer's time within which all of its tokens come
// where they were held back. An engine spends most of a long answer on tokens.
const heldBack = 20

// preflight sends a few requests and says why a server cannot be measured. An
// answer whose chunks all come at once may only have been quick; one that gets
// longer and still comes at once was held back.
func (a Attached) preflight(ctx context.Context, env row.Env) error {
	client := a.client(1, lookTimeout)
	defer client.Close()
	params := fixtures.Params{Requests: 1, BlockSize: env.BlockSize, Context: a.Model.Context, Vocab: a.Model.Vocab}
	chunks := 0
	for _, output := range []int{32, 128, 512} {
		params.Nonce = rand.Text()
		prompt := fixtures.Sacrificial(params)
		request := row.Request{ID: "preflight", Prompt: prompt, MaxTokens: min(output, a.Model.Context-len(prompt)), IgnoreEOS: true}
		t := client.Do(ctx, request)
		switch {
		case t.HTTP == http.StatusUnauthorized || t.HTTP == http.StatusForbidden:
			return fmt.Errorf("it wants a key (HTTP %d): set OPENAI_API_KEY", t.HTTP)
		case t.HTTP == http.StatusNotFound || t.HTTP == http.StatusMethodNotAllowed:
			return fmt.Errorf("it has no /v1/completions (HTTP %d): a gateway for chats alone cannot be measured, since prompts are token ids", t.HTTP)
		case t.HTTP == http.StatusBadRequest || t.HTTP == http.StatusUnprocessableEntity:
			return fmt.Errorf("it refuses a prompt of token ids: %s", t.Err)
		case t.Status != row.OK:
			return fmt.Errorf("the first request ended as %s: %s", t.Status, t.Err)
		}
		if chunks = len(t.Chunks); chunks < 2 || t.LastToken.Sub(t.FirstToken) > t.End.Sub(t.Sent)/heldBack {
			return nil
		}
	}
	return fmt.Errorf("all %d chunks of an answer came at once: something between here and the engine buffers the stream, and no time to first token could be measured", chunks)
}

// withHeader adds the key and the headers to what goes to the engine's host.
type withHeader struct {
	engine string
	key    string
	header http.Header
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	if u, err := url.Parse(w.engine); err == nil && u.Host == r.URL.Host {
		r = r.Clone(r.Context())
		for name, values := range w.header {
			r.Header[name] = values
		}
		if w.key != "" {
			r.Header.Set("Authorization", "Bearer "+w.key)
		}
	}
	return direct.RoundTrip(r)
}

// direct goes past any proxy of the environment.
var direct = &http.Transport{Proxy: nil, IdleConnTimeout: time.Minute}

// replicas are the pages of several servers as one: each series carries the
// number of its page, so that sums count all of them.
type replicas struct {
	name  string
	pages []*probe.Scraper
}

func newReplicas(name string, urls []string, client *http.Client) row.Probe {
	r := replicas{name: name}
	for _, u := range urls {
		r.pages = append(r.pages, probe.New(name, u, client))
	}
	if len(r.pages) == 1 {
		return r.pages[0]
	}
	return r
}

func (r replicas) Name() string { return r.name }

func (r replicas) Snapshot(ctx context.Context) (row.Snapshot, error) {
	all := row.Snapshot{Probe: r.name}
	for i, page := range r.pages {
		s, err := page.Snapshot(ctx)
		if err != nil {
			return row.Snapshot{}, err
		}
		for _, series := range s.Series {
			labels := map[string]string{"replica": fmt.Sprint(i)}
			for name, value := range series.Labels {
				labels[name] = value
			}
			series.Labels = labels
			all.Series = append(all.Series, series)
		}
	}
	return all, nil
}
