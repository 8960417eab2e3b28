package recipe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/mini"
	daserstore "github.com/kvproof/kvproof/harness/mini/daser"
	"github.com/kvproof/kvproof/harness/mini/engine"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/row"
)

// Mini is the miniature stack: every service in this process.
type Mini struct {
	Model  string        // mini, nano
	Faults []fault.Fault // planted before the first request

	// EngineCache gives the row lmcache's engine a prefix cache of its own, too.
	EngineCache bool

	// Launcher starts a real LMCache server for the row lmcache; nil: that row has
	// the miniature one.
	Launcher func() (*launch.Launcher, error)
}

// MiniModel is the model of that name.
func MiniModel(name string) (model.Config, error) {
	switch name {
	case "mini":
		return model.Mini(), nil
	case "nano":
		return model.Nano(), nil
	default:
		return model.Config{}, fmt.Errorf("unknown model %q: the built-in models are mini and nano", name)
	}
}

// MiniFacts are what decides the size of the KV of that model.
func MiniFacts(config model.Config) fixtures.ModelFacts {
	return fixtures.ModelFacts{KVHeads: config.KVHeads, HeadDim: config.HeadDim, Layers: config.Layers, DTypeBytes: 4}
}

// names are the rows that the miniature stack has.
func (Mini) names() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return specs[name].name == "" })
}

func (m Mini) build(name string) (row.Row, error) {
	r := builtRow{spec: specs[name], stack: m}
	if r.real() {
		r.spec.witnesses = realLMCacheWitnesses(r.spec.witnesses)
	}
	if m.EngineCache && name == mini.LMCache {
		r.spec = behindEngineCache(r.spec)
	}
	return r, nil
}

// builtRow is a spec on the miniature stack.
type builtRow struct {
	spec
	stack Mini
}

// Start brings up the services of the row and assembles a server on them. The
// server's Close ends them.
func (r builtRow) Start(ctx context.Context, env row.Env) (*row.Server, error) {
	config, err := MiniModel(r.stack.Model)
	if err != nil {
		return nil, err
	}
	sized := mini.Config{
		Row: r.name, ModelName: env.ModelName, BlockSize: env.BlockSize, Model: config, MaxSeqs: cmp.Or(env.MaxSeqs, env.Concurrency),
		Faults: r.stack.Faults, Log: env.Log, Prefix: []int32{}, // prompts are the plan's, token for token
	}
	switch {
	case r.name == mini.EngineCache:
		sized.EngineCacheBytes = max(mini.DefaultEngineCacheBytes, env.CacheBytes)
	case r.tier != nil && env.Tiers == nil:
		sized.L1Bytes = max(mini.DefaultL1Bytes, env.CacheBytes)
	}
	sized.EngineCache = r.own != nil
	if env.Tiers != nil && r.tier != nil {
		sized.L1Bytes, sized.L2Bytes, sized.L2Dir = env.Tiers.L1Bytes, env.Tiers.L2Bytes, env.Tiers.L2Dir
	}
	services := &miniServices{row: r, env: env, config: sized}
	if err := services.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting row %s on the mini stack: %w", r.name, err), services.closeNow())
	}
	if r.real() && env.Tiers != nil {
		env.Tiers = nil // their sizes are its own
		r.witnesses = withoutReads(r.witnesses)
	}
	stack, cache := services.stack, services.cache
	endpoints := Endpoints{
		Engine: stack.EngineURL(), Backend: cmp.Or(stack.StoreURL(), stack.DaserURL()), Model: stack.ModelName(),
		Context: config.Context, Vocab: config.Vocab, TokenBytes: stack.Model().TokenBytes(),
		Facts: map[string]string{
			"stack": "mini", "engine": engine.DefaultVersion, "model": r.stack.Model, "model-fingerprint": stack.Model().Fingerprint(),
		},
		Work:    workOf(stack.Model()),
		Weights: updateWeights(stack.EngineURL()),
		Anatomy: miniAnatomy(),
		Close:   services.close,
	}
	if len(r.stack.Faults) > 0 {
		endpoints.Facts["faults"] = fault.Join(r.stack.Faults)
	}
	if r.tier != nil && env.Tiers == nil {
		maps.Copy(endpoints.Facts, tierFacts(row.Tiers{L1Bytes: sized.L1Bytes}))
	}
	if check := stack.KVCheck(); check != nil && r.Supports(row.Lossy) {
		endpoints.KVCheck = miniKVCheck{check}
	}
	if cache != nil {
		maps.Copy(endpoints.Facts, map[string]string{"lmcache": "process", "lmcache-version": LMCacheRelease(), "lmcache-pool": cache.Pool()})
		endpoints.Died = func() error { return cache.Err() } // of the one that runs then
	}
	server := r.assemble(endpoints, env)
	server.Exact = true
	if services.files != "" {
		server.Reopen = &row.CacheRestart{Do: services.restart, Keeps: true}
	}
	return server, nil
}

// miniAnatomy is vLLM's and what the miniature engine tells besides.
func miniAnatomy() *row.Anatomy {
	a := vllmAnatomy()
	a.Load = "kvproof_kv_load_seconds"
	return a
}

// updateWeights asks the miniature engine for other weights.
func updateWeights(engine string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, engine+"/update_weights", nil)
		if err != nil {
			return fmt.Errorf("asking for other weights: %w", err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return fmt.Errorf("asking for other weights: %w", err)
		}
		defer response.Body.Close()
		var answer struct{ Success bool }
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || !answer.Success {
			return fmt.Errorf("asking for other weights: HTTP status %d, success %v: %w", response.StatusCode, answer.Success, errors.Join(err, errNotUpdated))
		}
		return nil
	}
}

var errNotUpdated = errors.New("the engine did not take them")

// workOf is the work of a request by the model's own formula: its prompt less
// what was cached, then a step for each token but the first.
func workOf(m *model.Model) func(prompt, cached, output int) float64 {
	return func(prompt, cached, output int) float64 {
		flops := m.FLOPs(cached, prompt-cached)
		for i := range output - 1 {
			flops += m.FLOPs(prompt+i, 1)
		}
		return float64(flops)
	}
}

// miniKVCheck looks at the KV that the miniature DaseR delivers.
type miniKVCheck struct{ check *daserstore.Check }

func (c miniKVCheck) Start(context.Context) error {
	c.check.Switch(true)
	return nil
}

func (c miniKVCheck) Stop(context.Context) (row.KVReport, error) {
	report := c.check.Report()
	c.check.Switch(false)
	if len(report.Errors) > 0 {
		return row.KVReport{}, fmt.Errorf("%d loads could not be compared, the first: %s", len(report.Errors), report.Errors[0])
	}
	seen := row.KVReport{Checked: report.Chunks, Tokens: report.Tokens, Damaged: report.Damaged}
	for _, m := range report.Mismatches {
		seen.Mismatches = append(seen.Mismatches, m.String())
	}
	return seen, nil
}

// An Estimator says how long the miniature engine computes, from a short
// measurement on this machine.
type Estimator struct{ speed mini.Speed }

// Calibrate measures the model of that name for a fraction of a second.
func Calibrate(ctx context.Context, name string) (*Estimator, error) {
	config, err := MiniModel(name)
	if err != nil {
		return nil, err
	}
	m, err := model.New(config)
	if err != nil {
		return nil, err
	}
	speed, err := mini.Calibrate(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("calibrating the %s model: %w", name, err)
	}
	return &Estimator{speed: speed}, nil
}

// Request is the time that one core needs for a prompt of which cached tokens
// are reused, and for output tokens after it.
func (e *Estimator) Request(prompt, cached, output int) time.Duration {
	return e.speed.EstimateHit(prompt, cached) + e.speed.EstimateDecode(prompt, output)
}
