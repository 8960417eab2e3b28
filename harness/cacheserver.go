package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/recipe"
)

// A cacheServer is a cache server alone, started when it is first needed.
type cacheServer struct {
	stack string // mini or process
	chunk int
	gpu   bool   // it copies out of and into device memory
	dir   string // of its log

	server  *lmcmp.Server
	closers []func(context.Context) error // last first
}

// cacheStack is how the cache server comes to be: what -stack says of lmcache.
func (s *session) cacheStack() string {
	for part := range strings.SplitSeq(s.settings.Stack, ",") {
		service, kind, byService := strings.Cut(part, "=")
		if !byService {
			return part
		}
		if service == cacheRow {
			return kind
		}
	}
	return "mini"
}

// serverLogs is the directory for logs of servers.
func (s *session) serverLogs() string {
	if s.artifacts == nil {
		return ""
	}
	return filepath.Join(s.artifacts.Dir, "cacheserver")
}

// cacheWorkers is how many transfers a server works off at once: each worker of
// each client has a connection, and a connection is one lane.
const cacheWorkers = 16

// room is how much more memory a server gets than a run stores: it evicts from
// four fifths on, and what the run before has stored is still there.
const room = 3

// start starts the server for runs that store that many bytes, unless it runs.
// Where it is not installed the test is skipped, or fails under -require.
func (c *cacheServer) start(tb testing.TB, ctx context.Context, bytes int64) error { //nolint:revive // the context is the run's
	tb.Helper()
	if c.server != nil {
		return nil
	}
	bytes = max(room*bytes, 64<<20)
	var endpoints lmcmp.Endpoints
	switch c.stack {
	case "attach":
		tb.Skip("A cache server that is up is measured by kvproof cachebench, which is told where.")
	case "mini":
		mini, err := lmcache.Start(ctx, lmcache.Config{
			Chunk: c.chunk, HTTPAddr: "127.0.0.1:0", TransferWorkers: cacheWorkers, Workers: cacheWorkers, L1Bytes: bytes,
		})
		if err != nil {
			return err
		}
		c.closers = append(c.closers, mini.Close)
		endpoints = lmcmp.Endpoints{RPC: mini.Endpoint(), HTTP: mini.URL()}
	case "process":
		if _, err := recipe.FindLMCache(""); errors.Is(err, recipe.ErrNotInstalled) {
			Missing(tb, "This needs a real cache server: %v.", err)
		}
		launcher, err := services.launcher()
		if err != nil {
			return err
		}
		if c.dir == "" { // no artifacts: this is a test
			c.dir = tb.TempDir()
		}
		running, err := recipe.LMCacheServer{Chunk: c.chunk, L1GB: float64(bytes) / (1 << 30), Workers: cacheWorkers, GPU: c.gpu, Dir: c.dir}.Start(ctx, launcher)
		if err != nil {
			return err
		}
		c.closers = append(c.closers, running.Stop)
		endpoints = running.Endpoints
	default:
		return fmt.Errorf("-stack: the cache server by %s cannot be started for this benchmark; there are mini and process", c.stack)
	}
	var err error
	c.server, err = lmcmp.Discover(ctx, endpoints, "")
	return err
}

// close ends it.
func (c *cacheServer) close() error {
	if c.server != nil {
		c.server.Close()
	}
	ctx, cancel := closeContext()
	defer cancel()
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer(ctx))
	}
	c.closers, c.server = nil, nil
	return errors.Join(errs...)
}

// StartLMCache starts a real LMCache server for a test, which ends with it.
// Where it is not installed the test is skipped, or fails under -require.
func StartLMCache(tb testing.TB, server recipe.LMCacheServer) *recipe.RunningLMCache {
	tb.Helper()
	if server.Dir == "" {
		server.Dir = tb.TempDir()
	}
	if _, err := recipe.FindLMCache(server.Release); errors.Is(err, recipe.ErrNotInstalled) {
		Missing(tb, "This needs a real cache server: %v.", err)
	}
	launcher, err := launch.New(tb.TempDir())
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := closeContext()
		defer cancel()
		require.NoError(tb, launcher.Close(ctx))
	})
	running, err := server.Start(tb.Context(), launcher)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := closeContext()
		defer cancel()
		require.NoError(tb, running.Stop(ctx))
	})
	return running
}
