package recipe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/row"
)

// closeTimeout bounds the end of services whose start failed.
const closeTimeout = 60 * time.Second

// assemble asks the engine about itself and makes a server on what was started.
func (d *deployed) assemble(ctx context.Context) (*row.Server, error) {
	m, stack := d.row.deployment.Model, Process
	if d.row.deployment.Docker {
		stack = Docker
	}
	e := Endpoints{
		Engine: d.urls[engineProbe], Metrics: d.metrics[engineProbe], Model: m.Name, Context: m.Context, Vocab: m.Vocab,
		Blockless: d.row.file.Blocks == "none",
		Facts:     map[string]string{"stack": string(stack), "model": m.Name, "dir": d.dir},
		SlotDir:   filepath.Join(d.dir, "slots"), Died: d.died, Close: d.close,
	}
	if d.env.Context > 0 {
		e.Context = d.env.Context
	}
	tokenBytes, err := d.row.tokenBytes()
	if err != nil {
		return nil, err
	}
	e.TokenBytes = tokenBytes
	vllm := false
	for _, service := range d.row.file.Services {
		if service.Name == engineProbe {
			e.Closes, vllm = service.Closes, service.Program == "vllm"
		}
		if service.Socket != "" {
			e.Socket = d.sockets[service.Name]
		}
	}
	for name, argv := range d.argv {
		e.Facts["argv."+name] = argv
		if name != engineProbe {
			e.Backend, e.BackendMetrics = d.urls[name], d.metrics[name]
		}
	}
	if pool := poolPath(d.dir); isFile(pool) {
		e.Facts["lmcache-pool"] = pool
	}
	client := openai.New(openai.Config{BaseURL: e.Engine, Model: m.Name})
	defer client.Close()
	models, err := client.Models(ctx)
	if err != nil {
		return nil, err
	}
	found := false
	for _, model := range models {
		if found = model.ID == m.Name; found {
			if model.MaxModelLen > 0 && model.MaxModelLen != e.Context {
				return nil, fmt.Errorf("the engine has a context of %d tokens, asked for were %d", model.MaxModelLen, e.Context)
			}
			break
		}
	}
	if !found {
		return nil, fmt.Errorf("the engine does not serve %s: GET /v1/models has %v", m.Name, models)
	}
	if version, err := client.Version(ctx); err == nil { // llama.cpp's has no such route
		e.Facts["engine"] = version
	}
	if d.row.deployment.Strict && d.row.deployment.Docker && d.row.deployment.Engine == "vllm" {
		e.Facts[batchInvariantFact] = batchInvariant(ctx, e.Engine, &http.Client{Timeout: lookTimeout, Transport: direct})
	}
	e.versioned(ctx, vllm, d.row.file.Settle.Status == "lmcache", &http.Client{Timeout: adminTimeout, Transport: direct})
	if e.Socket != "" {
		if err := d.readDaser(ctx, &e); err != nil {
			return nil, err
		}
	}
	server := d.row.assemble(e, d.env)
	server.Restart, server.Keep = d.restart, d.keep
	server.Reopen = &row.CacheRestart{
		Do:    func(ctx context.Context) error { return d.restart(ctx, engineProbe) },
		Keeps: d.row.coldHow == "files",
	}
	return server, nil
}

// tokenBytes is the size of a token's KV in the row's engine, which may hold it in
// another type than that of the model; 0: unknown.
func (r deployedRow) tokenBytes() (int, error) {
	m := r.deployment.Model
	if m.Sizeless {
		return 0, nil
	}
	for _, s := range r.file.Services {
		if s.Name == engineProbe && s.KVValue > 0 && m.Dir != "" && !r.deployment.contained(s) {
			m.Facts.DTypeBytes = s.KVValue
		}
	}
	bytes, err := m.Facts.TokenBytes(1)
	return int(bytes), err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// readDaser refuses a DaseR that runs with something else than it was told to, or
// cannot be asked what the row has to ask. Its block size is a finding like that
// of other servers.
func (d *deployed) readDaser(ctx context.Context, e *Endpoints) error {
	config, err := readDaserConfig(ctx, e.Socket)
	if err != nil {
		return err
	}
	e.Facts["daser.config"] = fmt.Sprintf("%+v", config)
	if differs := config.differs(e.Model, cacheGiB(d.env)*gibibyte); differs != "" {
		return errors.New(differs)
	}
	if !d.row.Supports(row.Documents) {
		return nil
	}
	params := fixtures.Params{Requests: 1, BlockSize: d.env.BlockSize, Context: e.Context, Vocab: e.Vocab}
	return newDaser(e.Backend, true).takesTokens(ctx, fixtures.Sacrificial(params))
}
