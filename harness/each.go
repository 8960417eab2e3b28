package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// proofRequests is the part of a plan that the proof covers.
const proofRequests = 4

// Each runs body for every selected row and those of workloads that are
// selected, as sub-benchmarks backend=…/block=…/workload=…. A row's server is
// started by the first of its cells that really runs and shared by the others.
func Each(b *testing.B, workloads []fixtures.Workload, body func(*testing.B, *Cell)) {
	s := current
	if s.selection.noLoader != "" {
		b.Skip(s.selection.noLoader)
	}
	workloads = s.selected(workloads)
	for _, r := range s.selection.rows {
		if !slices.ContainsFunc(workloads, func(w fixtures.Workload) bool { return applies(r, w) }) {
			continue // a benchmark without sub-benchmarks would print a line of its own
		}
		b.Run("backend="+metric.Slug(r.Name()), func(b *testing.B) {
			if missing := missingOf(r); missing != "" {
				Missing(b, "%s.", missing)
			}
			b.Run(fmt.Sprintf("block=%d", s.settings.BlockSize), func(b *testing.B) {
				shared := s.share(b, r, "", nil)
				for _, w := range workloads {
					if !applies(r, w) {
						continue
					}
					state := &cellState{} // outlives the repeats of -count
					if s.settings.Evict { // a store is sized for one working set
						budgets := s.selection.budgets[w.Name]
						shared = s.share(b, r, w.Name, &budgets)
					}
					b.Run("workload="+metric.Slug(w.Name), func(b *testing.B) {
						b.StopTimer()
						cell := s.cell(b, shared, w, state)
						b.StartTimer()
						body(b, cell)
					})
					if s.settings.Evict { // its memory is the next one's
						if err := shared.close(); err != nil {
							b.Error(err)
						}
					}
				}
			})
		})
	}
}

// selected are those of workloads that are selected, in the order of the
// selection; of a sweep all of its members.
func (s *session) selected(workloads []fixtures.Workload) []fixtures.Workload {
	return slices.DeleteFunc(slices.Clone(s.selection.workloads), func(w fixtures.Workload) bool {
		return !slices.ContainsFunc(workloads, func(o fixtures.Workload) bool { return o.Name == w.Name || o.Name == w.Of })
	})
}

// A sharedServer is the server of one row, started when it is first needed.
type sharedServer struct {
	row      row.Row
	workload string            // for which its store is sized; empty: for any
	budgets  *fixtures.Budgets // of that store; nil: the stack's default
	start    func() (*row.Server, error)

	directory string // of its second tier

	mu     sync.Mutex
	closed bool
	server *row.Server
}

// share prepares a server that ends with b.
func (s *session) share(b *testing.B, r row.Row, workload string, budgets *fixtures.Budgets) *sharedServer {
	shared := &sharedServer{row: r, workload: workload, budgets: budgets}
	if !s.inProcess() {
		shared.start = func() (*row.Server, error) { return s.live(r) }
		return shared
	}
	shared.start = sync.OnceValues(func() (*row.Server, error) { return s.startServer(shared) })
	s.servers = append(s.servers, shared)
	b.Cleanup(func() {
		if err := shared.close(); err != nil {
			b.Error(err)
		}
	})
	return shared
}

// startServer brings a row up, checks what its servers say about themselves
// and warms it up.
func (s *session) startServer(shared *sharedServer) (*row.Server, error) {
	r := shared.row
	s.progress.show("starting " + r.Name())
	logs, err := s.logs()
	if err != nil {
		return nil, err
	}
	log, err := openLog(logs, r.Name())
	if err != nil {
		return nil, err
	}
	name, err := s.modelDir()
	if err != nil {
		return nil, err
	}
	env := row.Env{
		ModelName: name,
		BlockSize: s.settings.BlockSize, Concurrency: s.settings.Concurrency, Log: log, CacheBytes: s.selection.cacheBytes,
		MaxSeqs: s.settings.MaxSeqs, Stall: s.settings.Timeout,
		Context: s.selection.params.Context, Dir: logs,
	}
	if b := shared.budgets; b != nil {
		shared.directory = filepath.Join(s.artifacts.Dir, "l2")
		// What goes through the store outside the plan has room of its own
		// in L2, or it would push out what the plan put there.
		outside := b.SlotBytes * int64(s.outsideBlocks())
		env.Tiers = &row.Tiers{L1Bytes: b.L1Bytes, L2Bytes: b.L2Bytes + outside, L2Dir: shared.directory}
	}
	server, err := r.Start(s.ctx, env)
	if err != nil {
		return nil, err
	}
	shared.mu.Lock()
	shared.server = server
	shared.mu.Unlock()
	if err := s.addRow(server, shared.workload); err != nil {
		return nil, err
	}
	if found := run.Start(s.ctx, server, s.settings.BlockSize); len(found) > 0 {
		return nil, findingsError(found)
	}
	s.progress.show("warming up " + r.Name())
	if err := run.WarmUp(s.ctx, server, s.selection.params, s.inFlight()); err != nil {
		return nil, fmt.Errorf("row %s: %w (its log: %s)", r.Name(), err, log.Name())
	}
	return server, nil
}

// openLog opens the log of a row's services beside the artifacts. It stays open
// until the process ends, as services may log while they end.
func openLog(dir, name string) (*os.File, error) {
	dir = filepath.Join(dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for logs: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of row %s: %w", name, err)
	}
	return log, nil
}

// outsideBlocks are the blocks of the warm-up and of a sacrificial prompt.
func (s *session) outsideBlocks() int {
	blocks := 2
	for _, r := range fixtures.WarmUp(s.selection.params, s.inFlight()) {
		blocks += len(r.Prompt)/s.settings.BlockSize + 1
	}
	return blocks
}

func (s *session) addRow(server *row.Server, workload string) error {
	if s.artifacts == nil {
		return nil
	}
	endpoints := map[string]artifact.Endpoint{"engine": {URL: server.URL}}
	if server.Backend != "" {
		endpoints["backend"] = artifact.Endpoint{URL: server.Backend}
	}
	s.manifest.Rows = append(s.manifest.Rows, artifact.RowManifest{
		Backend: server.Row, Workload: workload, ReuseMode: server.Facts["reuse_mode"], Model: s.settings.Model,
		BlockSize: s.settings.BlockSize, Endpoints: endpoints,
		Law: server.Law.Name, Facts: server.Facts,
	})
	if err := s.artifacts.WriteServiceManifest(server.Row, workload, s.services(server)); err != nil {
		return err
	}
	return s.artifacts.WriteManifest(s.manifest)
}

// close ends the server; closing twice, or one that never started, is fine.
func (shared *sharedServer) close() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.closed || shared.server == nil {
		shared.closed = true
		return nil
	}
	shared.closed = true
	ctx, cancel := closeContext()
	defer cancel()
	err := shared.server.Close(ctx)
	if shared.budgets != nil { // empty now; the next one may be using it
		_ = os.Remove(shared.directory)
	}
	if err != nil {
		return fmt.Errorf("closing row %s: %w", shared.row.Name(), err)
	}
	return nil
}

// findingsError is findings as an error, one per line.
func findingsError(findings []row.Finding) error {
	errs := make([]error, len(findings))
	for i, f := range findings {
		errs[i] = errors.New(f.String())
	}
	return errors.Join(errs...)
}
