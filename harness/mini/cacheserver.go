package mini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/connector"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
)

// placeAlign is what chunks are aligned to in a server of our own: a value, so
// that L1 holds the bytes of KV that it was given, whatever the chunk.
const placeAlign = 4

// cacheParts are what the row lmcache has between engine and store.
type cacheParts struct {
	server    *lmcache.Server // nil: somebody else's
	files     string          // directory of its L2
	http      *server
	connector *connector.Connector
	url       string
}

// startCacheServer connects the engine to a cache server, which it starts
// unless there is one, and returns what the engine sees of it.
func (s *Stack) startCacheServer(ctx context.Context) (kv.Store, error) {
	c := s.config
	connect := connector.Config{
		Endpoint: c.LMCacheAddr, Transfer: c.LMCacheTransfer, Model: c.ModelName + "-" + s.model.Fingerprint(),
		BlockSize: c.engineBlockSize(), Layers: c.Model.Layers, Hidden: c.Model.KVHeads * c.Model.HeadDim,
		// A real server releases the locks of a retrieve some milliseconds after
		// it has answered, and a clear that minds locks leaves what has one.
		ForceReset: true,
	}
	if c.LMCacheAddr == "" {
		if err := s.serveCache(ctx); err != nil {
			return nil, err
		}
		connect.Endpoint, connect.Dialect = s.cache.server.Endpoint(), s.cache.server.Dialect()
		if !s.cache.server.Shared() {
			connect.Open = func(name string, size int) (connector.Pool, error) {
				bytes, err := s.cache.server.Open(name, size)
				return privatePool(bytes), err
			}
		}
	} else {
		version, err := readVersion(ctx, c.LMCacheHTTP)
		if err != nil {
			return nil, err
		}
		if connect.Dialect, err = wire.ForVersion(version); err != nil {
			return nil, err
		}
		s.cache.url = strings.TrimSuffix(c.LMCacheHTTP, "/")
	}
	var err error
	if s.cache.connector, err = connector.New(ctx, connect); err != nil {
		return nil, err
	}
	return s.injector.WrapStore(s.cache.connector), nil
}

// serveCache starts a cache server in this process. Its memory is shared, as
// anybody's would be, where the system has room for it.
func (s *Stack) serveCache(ctx context.Context) (err error) {
	c := s.config
	chunkBytes := int64(c.chunk() * s.model.TokenBytes())
	config := lmcache.Config{
		Chunk: c.chunk(), NullBlock: lmcache.NoNullBlock, Align: placeAlign, L1Bytes: c.L1Bytes, L2Bytes: c.L2Bytes, ClearL2: true,
		// What is being written, and what is read from L2, by all sequences at once.
		Staging: int64(c.MaxSeqs) * (int64(c.Model.Context*s.model.TokenBytes()) + chunkBytes),
		Log:     c.Log,
	}
	if config.L2Dir = c.L2Dir; c.L2Dir != "" && !c.KeepL2 {
		if err := os.MkdirAll(c.L2Dir, 0o755); err != nil {
			return fmt.Errorf("making the directory of L2: %w", err)
		}
		if s.cache.files, err = os.MkdirTemp(c.L2Dir, "kvproof-l2-"); err != nil {
			return fmt.Errorf("making a directory for L2: %w", err)
		}
		config.L2Dir = s.cache.files
	}
	free, freeErr := shm.Free()
	config.NoShm = freeErr != nil || free < 2*(config.L1Bytes+config.Staging)
	if s.cache.server, err = lmcache.Start(ctx, config); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.cache.server.Handler())
	mux.Handle("/debug/", debug(s.cache.server, c.Unsafe))
	if s.cache.http, err = serve(ctx, c.StoreAddr, mux, c.Log); err != nil {
		return err
	}
	s.cache.url = s.cache.http.url
	return nil
}

// privatePool is memory of this process.
type privatePool []byte

func (p privatePool) Bytes() []byte { return p }
func (privatePool) Close() error    { return nil }

// readVersion asks a cache server for its release.
func readVersion(ctx context.Context, base string) (version string, err error) {
	url := strings.TrimSuffix(base, "/") + "/version"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("asking the cache server for its version: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking the cache server for its version: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("asking the cache server for its version: GET %s: %s", url, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&version); err != nil {
		return "", fmt.Errorf("asking the cache server for its version: GET %s: %w", url, err)
	}
	return version, nil
}

// close disconnects and, where the server is ours, ends it.
func (p *cacheParts) close(ctx context.Context) error {
	var failed []error
	if p.connector != nil {
		failed = append(failed, p.connector.Close(context.WithoutCancel(ctx)))
	}
	if p.http != nil {
		failed = append(failed, p.http.stop(ctx))
	}
	if p.server != nil {
		failed = append(failed, p.server.Close(ctx))
	}
	if p.files != "" {
		failed = append(failed, os.RemoveAll(p.files))
	}
	return errors.Join(failed...)
}

// StoreURL is the base URL of the HTTP side of LMCache's server; empty in
// other rows.
func (s *Stack) StoreURL() string { return s.cache.url }

// CacheServer is the cache server of the row lmcache; nil in other rows, and
// where it is somebody else's.
func (s *Stack) CacheServer() *lmcache.Server { return s.cache.server }
