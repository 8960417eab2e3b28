package lmcmp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// Endpoints are the addresses of a cache server.
type Endpoints struct {
	RPC  string // tcp://host:port
	HTTP string // http://host:port; empty: unknown, and with it the witnesses that are there
}

// A Server is a cache server that has been asked what it is.
type Server struct {
	Endpoints
	Dialect *wire.Dialect
	Version string     // as the server says it; empty where it was not asked
	Chunk   int        // tokens
	Modes   []Transfer // transfers that it takes, empty: unknown
	Workers int        // transfers that it works off at once; 0: unknown

	http httpSide
}

// A Transfer says who copies.
type Transfer string

// The transfers.
const (
	Auto          Transfer = "auto"           // EngineDriven on a CPU, LMCacheDriven on a GPU, as upstream's clients choose
	EngineDriven  Transfer = "engine_driven"  // the client, through the server's shared memory
	LMCacheDriven Transfer = "lmcache_driven" // the server, out of and into the client's memory
)

// Transfers are the names of all.
func Transfers() []Transfer { return []Transfer{Auto, EngineDriven, LMCacheDriven} }

const (
	probePatience = 2 * time.Second
	rpcPatience   = 10 * time.Second
)

// Discover asks a server what it is. The dialect is that of version, where one
// is given; else that of the server's own /version. Without the HTTP side it is
// found by pings, whose forms in all releases cannot be taken for anything that
// changes a cache; never by other operations, whose numbers can.
func Discover(ctx context.Context, e Endpoints, version string) (*Server, error) {
	if _, err := wire.Address(e.RPC); err != nil {
		return nil, err
	}
	side, err := newHTTPSide(e.HTTP)
	if err != nil {
		return nil, err
	}
	s := &Server{Endpoints: e, http: side}
	// That somebody listens is seen before anything else is asked: it takes
	// under a millisecond.
	first, err := wire.Dial(ctx, e.RPC)
	if err != nil {
		return nil, err
	}
	if err := first.Close(); err != nil {
		return nil, err
	}
	if s.Dialect, err = s.dialect(ctx, version); err != nil {
		return nil, err
	}
	dealer := wire.NewDealer(e.RPC, s.Dialect, rpcPatience)
	defer dealer.Close() //nolint:errcheck // nothing is lost with it
	if _, err := dealer.Call(ctx, &wire.GetChunkSize{}, &s.Chunk); err != nil {
		return nil, fmt.Errorf("asking the cache server (taken for LMCache %s) for its chunk size: %w", s.Dialect.Version, err)
	}
	if s.Chunk <= 0 {
		return nil, fmt.Errorf("the cache server's chunk size is %d", s.Chunk)
	}
	if e.HTTP == "" {
		return s, nil
	}
	return s, s.readConfiguration(ctx)
}

// dialect finds out how the server speaks.
func (s *Server) dialect(ctx context.Context, version string) (*wire.Dialect, error) {
	if version != "" {
		return wire.ForVersion(version)
	}
	if s.HTTP == "" {
		return s.probe(ctx)
	}
	v, err := s.http.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the cache server for its version: %w; without its HTTP side, leave the URL empty or name the version", err)
	}
	s.Version = v
	return wire.ForVersion(v)
}

// probe finds the release out without the HTTP side. It pings by numbers that
// mean a ping in one release and, with its payloads, nothing in an older one:
// there they are operations with others, which are dropped. Those numbers exist
// in all releases. A number that a release up to 0.5.5 does not
// know, or a name, ends its loop for everybody (observed on 0.5.5).
func (s *Server) probe(ctx context.Context) (*wire.Dialect, error) {
	var tried []string
	for _, release := range []string{"0.5.5", "0.5.2", "0.4.7"} {
		d, err := wire.ForVersion(release)
		if err != nil {
			return nil, err
		}
		tried = append(tried, "ping of LMCache "+release)
		var alive bool
		answered, err := s.answers(ctx, d, &wire.Ping{}, &alive)
		switch {
		case err != nil:
			return nil, fmt.Errorf("finding out the cache server's release (tried: %s): %w", strings.Join(tried, ", "), err)
		case answered && release == "0.5.5":
			return s.newestOr(ctx, d)
		case answered:
			return d, nil
		}
	}
	return nil, fmt.Errorf("the cache server at %s answered no ping (tried: %s; %v each): it is no LMCache server, or one that is not known; name its version, or the URL of its HTTP side", s.RPC, strings.Join(tried, ", "), probePatience)
}

// newestOr tells 0.5.6 and later from the releases before, which have the same
// numbers: they answer a question that was retired, and that changes nothing.
func (s *Server) newestOr(ctx context.Context, older *wire.Dialect) (*wire.Dialect, error) {
	hits := 0
	answered, err := s.answers(ctx, older, &wire.QueryLookupHits{RequestID: "kvproof-probe"}, &hits)
	if err != nil || answered {
		return older, err
	}
	return wire.Newest(), nil
}

// answers says whether a request gets an answer in time.
func (s *Server) answers(ctx context.Context, d *wire.Dialect, r wire.Request, result any) (bool, error) {
	dealer := wire.NewDealer(s.RPC, d, probePatience)
	defer dealer.Close() //nolint:errcheck // nothing is lost with it
	_, err := dealer.Call(ctx, r, result)
	if wire.IsTimeout(err) {
		return false, nil
	}
	return err == nil, err
}

// readConfiguration takes over what the HTTP side says, and holds it against
// what the other side said.
func (s *Server) readConfiguration(ctx context.Context) error {
	var c configuration
	if err := s.http.call(ctx, http.MethodGet, s.Dialect.Routes.Config, nil, &c); err != nil {
		return fmt.Errorf("reading the cache server's configuration: %w", err)
	}
	if c.MP.ChunkSize != 0 && c.MP.ChunkSize != s.Chunk {
		return fmt.Errorf("the cache server at %s has chunks of %d tokens and the one at %s of %d: they are not the same server", s.RPC, s.Chunk, s.HTTP, c.MP.ChunkSize)
	}
	s.Workers = c.MP.Workers
	switch c.MP.Modes {
	case "auto":
		s.Modes = []Transfer{LMCacheDriven}
		// The pool is named by the server's flag from 0.5.4 on, before by itself.
		if c.MP.ShmName != "" || s.autoPool() {
			s.Modes = append(s.Modes, EngineDriven)
		}
	case "lmcache_driven", "gpu":
		s.Modes = []Transfer{LMCacheDriven}
	case "engine_driven", "non_gpu":
		s.Modes = []Transfer{EngineDriven}
	}
	return nil
}

func (s *Server) autoPool() bool {
	return slices.Contains([]string{"0.4.7", "0.5.0", "0.5.1", "0.5.2", "0.5.3"}, s.Dialect.Version)
}

// ErrTransfer says that the server does not do the transfer that was asked for.
var ErrTransfer = errors.New("the cache server does not do this transfer")

// Resolve is the transfer that t comes to: auto is what upstream's clients
// choose. What the server says that it cannot do is an error; another transfer
// is never taken instead.
func (s *Server) Resolve(t Transfer, gpu bool) (Transfer, error) {
	switch {
	case t == Auto && gpu:
		t = LMCacheDriven
	case t == Auto:
		t = EngineDriven
	case !slices.Contains(Transfers(), t):
		return "", fmt.Errorf("transfer %q: there are %s, %s, %s", t, Auto, EngineDriven, LMCacheDriven)
	}
	if gpu && t == EngineDriven {
		return "", fmt.Errorf("%w: %s from device memory; use %s", ErrTransfer, t, LMCacheDriven)
	}
	if len(s.Modes) > 0 && !slices.Contains(s.Modes, t) {
		hint := ""
		if t == EngineDriven {
			hint = "; start it with --supported-transfer-mode auto --shm-name NAME"
		}
		return "", fmt.Errorf("%w: %s, it has %v%s", ErrTransfer, t, s.Modes, hint)
	}
	return t, nil
}

// Close gives the connections of the HTTP side back.
func (s *Server) Close() {
	if s.http.client != nil {
		s.http.client.CloseIdleConnections()
	}
}
