package recipe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

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
	salts, err := a.examine(looking, r.spec, env)
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", a.Engine, err)
	}
	e := Endpoints{
		Engine: a.Engine, Backend: a.Backend, Replicas: a.Metrics, Model: a.Model.Name, Context: a.Model.Context, Vocab: a.Model.Vocab, AnyVocab: a.Model.Sizeless,
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
	e.versioned(looking, a.Family == "vllm", r.name == "lmcache", admin)
	server := r.assemble(e, env)
	server.BlockSize = slices.DeleteFunc(server.BlockSize, func(b row.BlockSizeReader) bool {
		_, err := b.Read(looking)
		return errors.Is(err, errUntold) // but over a socket of its machine
	})
	if server.Saltless = salts != ""; server.Saltless {
		server.Facts["salts"] = "not used: " + salts
	}
	return server, nil
}
