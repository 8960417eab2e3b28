package harness

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// prepared is a workload in the words of DaseR's prepare.json.
func (s *Settings) prepared(plan fixtures.Plan, set fixtures.WorkingSet, slot int64, params fixtures.Params) (artifact.Prepared, error) {
	p := artifact.Prepared{
		Dataset: plan.Workload, NumSamples: len(plan.Requests), MaxInflight: s.Concurrency, BlockSize: s.BlockSize, Evict: s.Evict,
		GenParams: artifact.GenParams{MaxTokens: s.OutputLen, Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed},
		LeftOut:   plan.LeftOut, BenchPrepared: s.benchPrepared(),
	}
	if params.Texts != nil && plan.Workload != "trace" {
		p.Duplicates = params.Texts.Duplicates
	}
	return p, p.Size(set, slot)
}

// services is a row's services in the words of DaseR's manifest.json, where the
// engine of every row is vllm.
func (s *session) services(server *row.Server) artifact.ServiceManifest {
	m := artifact.ServiceManifest{
		RunID: s.artifacts.ID, Backend: "vllm", Row: server.Row, ReuseMode: server.Facts["reuse_mode"], Model: s.settings.Model,
		StoreDir: s.artifacts.Dir, LogDir: filepath.Join(s.artifacts.Dir, "logs"), BlockSize: s.settings.BlockSize,
		L1Bytes: sizeFact(server, "l1_size_bytes"), L2Bytes: sizeFact(server, "l2_size_bytes"), SkipL2: server.Facts["skip_l2"] != "false",
		Endpoints: map[string]artifact.Endpoint{"vllm": {URL: server.URL}},
	}
	if server.Backend != "" {
		m.Backend, _, _ = strings.Cut(server.Row, "-")
		m.Endpoints[m.Backend] = artifact.Endpoint{URL: server.Backend}
	}
	return m
}

func sizeFact(server *row.Server, name string) *int64 {
	n, err := strconv.ParseInt(server.Facts[name], 10, 64)
	if err != nil {
		return nil // it has no such tier
	}
	return &n
}

// A summary is the last cycle of a cell, as it is shown at the end.
type summary struct {
	title string
	path  string
	text  artifact.Results
}

// summarize keeps the last cycle of a cell for the end of the run.
func (c *Cell) summarize(result run.Result) {
	if c.session.artifacts == nil || result.Record.Result == nil {
		return
	}
	row, workload := c.state.sharing.Row, c.state.workload
	cycle := c.session.cellArtifacts(row, workload).Cycle(fmt.Sprintf("cycle-%d", result.Cycle))
	c.state.table.summary = &summary{title: row + " " + workload, path: filepath.Join(cycle.Dir(), "results.json"), text: result.Record}
}

// printSummaries writes the lines of DaseR's runner, as comments, and keeps
// them as they are there in summary.txt.
func (s *session) printSummaries(w io.Writer) error {
	var b strings.Builder
	for _, r := range s.table {
		if r.summary != nil && r.failure == "" {
			artifact.WriteConsole(&b, r.summary.title, r.summary.path, r.summary.text)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	text := "== COMPARISON SUMMARY ==\n" + b.String() + "== COMPLETE ==\n"
	if _, err := io.WriteString(&commentWriter{w: w}, text); err != nil {
		return err
	}
	return s.artifacts.WriteSummary(text)
}
