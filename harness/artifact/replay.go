package artifact

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// A Replay is what is needed to run a cycle that showed something once more:
// the plan to its last token, how it was sent, and what it was sent to. It lies
// in repro/replay.json.
type Replay struct {
	Row         string            `json:"row"`
	Facts       map[string]string `json:"facts"`             // of the server: stack, versions, model
	Engine      string            `json:"engine"`            // URL that it had
	Backend     string            `json:"backend,omitempty"` // of the cache server behind it
	ModelName   string            `json:"model"`             // as the API names it
	Context     int               `json:"context"`           // tokens
	Vocab       int               `json:"vocab"`
	AnyVocab    bool              `json:"any_vocab,omitempty"`   // ids of answers may be larger
	TokenBytes  int               `json:"token_bytes,omitempty"` // of KV; 0: unknown
	BlockSize   int               `json:"block_size"`
	Concurrency int               `json:"concurrency"`
	Temperature float64           `json:"temperature"`
	TopP        float64           `json:"top_p,omitempty"`
	Seed        uint64            `json:"seed"`
	Exact       bool              `json:"exact"` // any difference is a fault
	Findings    []row.Finding     `json:"findings"`
	Command     []string          `json:"command"`
	Plan        fixtures.Plan     `json:"plan"`
}

// replayName is the file of a replay in its directory.
const replayName = "replay.json"

// WriteReplay leaves repro/replay.json.
func (c *Cycle) WriteReplay(r Replay) error {
	if c == nil {
		return nil
	}
	return writeJSON(filepath.Join(c.dir, "repro", replayName), r)
}

// Repro is the directory of what a cycle that showed something leaves; empty
// for a nil cycle.
func (c *Cycle) Repro() string {
	if c == nil {
		return ""
	}
	return filepath.Join(c.dir, "repro")
}

// ReadReplay reads what WriteReplay left: dir is the repro directory, or that
// of the cycle above it.
func ReadReplay(dir string) (r Replay, err error) {
	path := filepath.Join(dir, replayName)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(dir, "repro", replayName)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("reading what is to be replayed: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading what is to be replayed: %s: %w", path, err)
	}
	switch {
	case r.Row == "" || r.BlockSize <= 0 || r.Concurrency <= 0:
		return r, fmt.Errorf("reading what is to be replayed: %s names no row, block size or concurrency", path)
	case len(r.Plan.Requests) == 0:
		return r, fmt.Errorf("reading what is to be replayed: %s has no requests", path)
	}
	return r, nil
}
