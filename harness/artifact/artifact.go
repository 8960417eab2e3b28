// Package artifact keeps what a run saw: a directory per run with its
// manifest, and under it a directory per row, block size, workload and cycle
// with every request, the counters around each pass and the findings. Files
// are appended to while things happen, so a run that dies keeps what it
// measured.
//
//	results/run_20261130_210000/
//	  manifest.json                        settings, versions, host, rows
//	  samples.jsonl                        one line per finished cycle
//	  lmcache/block-128/unique/cycle-1/
//	    cold.requests.jsonl  cold.json     requests; summary, witnesses, counters
//	    warm.requests.jsonl  warm.json
//	    findings.jsonl  repro/             only where something was found
//
// Field names are those of DaseR's benchmark runner where it has them:
// times in milliseconds, rates in tokens per second, ratios as fractions.
package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A Run is the directory of one run. Its methods are safe for concurrent use.
type Run struct {
	Dir string
	ID  string

	mu sync.Mutex // one line at a time in the shared files
}

// CheckWritable says why no directory could be made at path, or nil. It
// creates nothing.
func CheckWritable(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for {
		info, err := os.Stat(abs)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is not a directory", abs)
		case err == nil:
			const write, search = 2, 1
			if err := syscall.Access(abs, write|search); err != nil {
				return fmt.Errorf("%s cannot be written: %w", abs, err)
			}
			return nil
		case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrNotExist):
			abs = filepath.Dir(abs)
		default:
			return err
		}
	}
}

// Create makes the directory of a run that starts now: parent/run_<time>, with
// a number behind it if that exists.
func Create(parent string, now time.Time) (*Run, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("creating the results directory: %w", err)
	}
	base := "run_" + now.Format("20060102_150405")
	for n := 1; ; n++ {
		id := base
		if n > 1 {
			id = fmt.Sprintf("%s_%d", base, n)
		}
		dir := filepath.Join(parent, id)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("creating the run directory: %w", err)
		}
		return &Run{Dir: dir, ID: id}, nil
	}
}

// WriteManifest replaces manifest.json.
func (r *Run) WriteManifest(m Manifest) error {
	m.RunID = r.ID
	return writeJSON(filepath.Join(r.Dir, "manifest.json"), m)
}

// A Sample is one finished cycle, as benchstat would see it.
type Sample struct {
	Backend  string             `json:"backend"`
	Block    int                `json:"block"`
	Workload string             `json:"workload"`
	Cycle    int                `json:"cycle"`
	Grade    string             `json:"grade"`
	Labels   []string           `json:"labels,omitempty"`
	Metrics  map[string]float64 `json:"metrics"`
}

// AppendSample adds a line to samples.jsonl.
func (r *Run) AppendSample(s Sample) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return appendLine(filepath.Join(r.Dir, "samples.jsonl"), s)
}

// Cell is the directory of one row, block size and workload, made when
// something is first written to it.
func (r *Run) Cell(backend string, block int, workload string) *Cell {
	return &Cell{dir: filepath.Join(r.Dir, backend, fmt.Sprintf("block-%d", block), workload)}
}

// A Cell is the directory of one row, block size and workload.
type Cell struct{ dir string }

// Cycle is the directory of one cycle of the cell, or of its proof; nil for a
// nil cell, which writes nothing.
func (c *Cell) Cycle(name string) *Cycle {
	if c == nil {
		return nil
	}
	return &Cycle{dir: filepath.Join(c.dir, name)}
}

func writeJSON(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	return nil
}

func appendLine(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a line of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	return nil
}
