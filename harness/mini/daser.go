package mini

import (
	"context"

	"github.com/kvproof/kvproof/harness/mini/daser"
	"github.com/kvproof/kvproof/harness/mini/kv"
	"github.com/kvproof/kvproof/harness/mini/tier"
)

// daserParts are what the rows daser-chunk and daser-prefix have beside the
// engine; all nil in other rows.
type daserParts struct {
	store  *daser.Store
	check  *daser.Check
	server *daser.Server
	http   *server
}

// startDaserStore returns what the engine gets to see of DaseR's store: the
// check outermost, so that it sees what planted faults did.
func (s *Stack) startDaserStore() (kv.Store, error) {
	c := s.config
	mode := daser.Prefix
	if c.Row == DaserChunk {
		mode = daser.Chunk
	}
	var err error
	s.daser.store, err = daser.NewStore(daser.StoreConfig{
		Mode: mode, Model: s.model, BlockSize: c.engineBlockSize(),
		Tiers:   tier.Config{L1Bytes: c.L1Bytes, L2Dir: c.L2Dir, L2Bytes: c.L2Bytes},
		Planted: s.injector.Has, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	s.daser.check = daser.NewCheck(s.injector.WrapStore(s.daser.store), s.daser.store)
	return s.daser.check, nil
}

// startDaser serves DaseR's HTTP once the engine answers: what is the same in
// every prompt is prefilled before.
func (s *Stack) startDaser(ctx context.Context) error {
	c := s.config
	if !c.hasDaser() {
		return nil
	}
	d := &s.daser
	config := daser.ServerConfig{Store: d.store, Engine: s.engineHTTP.url, Prefix: c.Prefix, Separator: c.Separator}
	if c.Unsafe {
		config.Check = d.check
	}
	d.server = daser.NewServer(config)
	if err := d.server.Start(ctx); err != nil {
		return err
	}
	var err error
	d.http, err = serve(ctx, c.DaserAddr, d.server.Handler(), c.Log)
	return err
}

// stopServer waits for the requests of DaseR's HTTP, or cuts them when ctx
// ends.
func (d *daserParts) stopServer(ctx context.Context) error {
	if d.http == nil {
		if d.server != nil {
			d.server.Close()
		}
		return nil
	}
	err := d.http.stop(ctx)
	d.server.Close()
	return err
}

func (d *daserParts) closeStore() error {
	if d.store == nil {
		return nil
	}
	return d.store.Close()
}

// DaserURL is the base URL of DaseR's server; empty in rows without one.
func (s *Stack) DaserURL() string {
	if s.daser.http == nil {
		return ""
	}
	return s.daser.http.url
}

// KVCheck holds the KV that DaseR delivers against a reference, while it is
// switched on; nil in rows without DaseR.
func (s *Stack) KVCheck() *daser.Check { return s.daser.check }
