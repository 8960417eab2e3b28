// Package mini starts a miniature stack in this process: an OpenAI-compatible
// engine that really computes, and behind it, for the row lmcache, a cache server
// that it speaks LMCache's wire to (this module's, or any other), for
// daser-chunk and daser-prefix a store that looks like DaseR, with DaseR's
// server in front. It is the default stack of the benchmarks and the test bed
// of the suite.
//
//	stack, err := mini.Start(ctx, mini.Config{Row: mini.LMCache, BlockSize: 128})
//	defer stack.Close(context.WithoutCancel(ctx))
//	response, err := http.Post(stack.EngineURL()+"/v1/completions", "application/json", body)
//	err = stack.Injector().Plant(fault.BitFlip) // and now the store is broken
//
// Nothing here knows the harness that measures it: an oracle that shared code
// with the engine would agree with it by construction.
package mini

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kvproof/kvproof/harness/mini/engine"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// A Stack is a running engine, with a store where its row has one.
type Stack struct {
	config      Config
	model       *model.Model
	engine      *engine.Engine
	cache       cacheParts
	injector    *fault.Injector
	engineHTTP  *server
	daser       daserParts
	closing     sync.Once
	closeResult error
}

// Start makes the model and serves the row; both addresses accept connections
// when it returns. ctx ends the start only: the stack runs until Close.
func Start(ctx context.Context, c Config) (*Stack, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("starting the miniature stack: %w", err)
	}
	c = c.withDefaults()
	s := &Stack{config: c}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the miniature stack for row %s: %w", c.Row, err), s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) (err error) {
	c := s.config
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.model, err = model.New(c.Model); err != nil {
		return err
	}
	s.injector = fault.NewInjector(s.model, c.engineBlockSize())
	for _, f := range c.Faults {
		if f.AtStart() {
			continue
		}
		if err := s.injector.Plant(f); err != nil {
			return err
		}
	}
	behind, err := s.startStore(ctx)
	if err != nil {
		return err
	}
	s.engine, err = engine.New(engine.Config{
		Model: s.model, ModelName: c.ModelName, BlockSize: c.engineBlockSize(), NumBlocks: c.numBlocks(s.model),
		MaxSeqs: c.MaxSeqs, PrefixCaching: c.prefixCaching(), Store: behind, Log: c.Log,
		DeferStores:   c.hasDaser(), // as its connector does, so that stores do not disturb prefills
		RecomputeHits: slices.Contains(c.Faults, fault.RecomputedHit), Noise: c.noise(),
	})
	if err != nil {
		return err
	}
	if s.engineHTTP, err = serve(ctx, c.Addr, s.injector.WrapHandler(s.engine.Handler()), c.Log); err != nil {
		return err
	}
	return s.startDaser(ctx)
}

// startStore returns what the engine gets to see of the store: nil where the
// row has none.
func (s *Stack) startStore(ctx context.Context) (kv.Store, error) {
	c := s.config
	switch {
	case !c.hasStore():
		return nil, nil
	case c.hasDaser():
		return s.startDaserStore()
	}
	return s.startCacheServer(ctx)
}

// EngineURL is the base URL of the engine, without a slash at its end.
func (s *Stack) EngineURL() string { return s.engineHTTP.url }

// Row is the row that the stack serves.
func (s *Stack) Row() string { return s.config.Row }

// ModelName is the name by which clients ask for the model.
func (s *Stack) ModelName() string { return s.config.ModelName }

// Model is the model that the engine runs.
func (s *Stack) Model() *model.Model { return s.model }

// Injector plants faults in the running stack.
func (s *Stack) Injector() *fault.Injector { return s.injector }

// Close drains: no new work is taken, running requests end, and what was
// acknowledged is stored. When ctx ends first, requests are cancelled and
// connections cut. In both cases ports and goroutines are gone afterwards. A
// second call waits for the first and returns its result.
func (s *Stack) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closeResult = s.close(ctx) })
	return s.closeResult
}

func (s *Stack) close(ctx context.Context) error {
	if s.injector != nil {
		s.injector.Clear() // a stalled stream would never drain
	}
	var engineErr, engineHTTPErr error
	daserHTTPErr := s.daser.stopServer(ctx) // its requests need the engine
	var stopping sync.WaitGroup
	if s.engineHTTP != nil {
		stopping.Go(func() { engineHTTPErr = s.engineHTTP.stop(ctx) })
	}
	if s.engine != nil {
		stopping.Go(func() { engineErr = s.engine.Shutdown(ctx) })
	}
	stopping.Wait()
	cacheErr := s.cache.close(ctx)
	daserErr := s.daser.closeStore()
	if err := errors.Join(daserHTTPErr, daserErr, engineErr, engineHTTPErr, cacheErr); err != nil {
		return fmt.Errorf("closing the miniature stack: %w", err)
	}
	return nil
}
