package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvproof/kvproof/harness/row"
)

// A Cycle is the directory of one cycle. A nil Cycle writes nothing.
type Cycle struct{ dir string }

// Dir is where the cycle is kept; empty for a nil cycle.
func (c *Cycle) Dir() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// AppendRequest adds a finished request to <phase>.requests.jsonl.
func (c *Cycle) AppendRequest(phase string, r Request) error {
	if c == nil {
		return nil
	}
	return appendLine(filepath.Join(c.dir, phase+".requests.jsonl"), r)
}

// WritePass writes <phase>.json.
func (c *Cycle) WritePass(phase string, p Pass) error {
	if c == nil {
		return nil
	}
	return writeJSON(filepath.Join(c.dir, phase+".json"), p)
}

// WriteProof writes proof.json.
func (c *Cycle) WriteProof(p any) error {
	if c == nil {
		return nil
	}
	return writeJSON(filepath.Join(c.dir, "proof.json"), p)
}

// AppendFinding adds a finding to findings.jsonl.
func (c *Cycle) AppendFinding(f row.Finding) error {
	if c == nil {
		return nil
	}
	return appendLine(filepath.Join(c.dir, "findings.jsonl"), f)
}

// A Repro is one request that a finding is about, with what came back each
// time it was sent.
type Repro struct {
	Finding row.Finding    `json:"finding"`
	Request string         `json:"request"`
	Prompt  []int32        `json:"prompt_token_ids"`
	Outputs map[string]any `json:"outputs"` // by phase
	Curl    string         `json:"curl"`
	Command []string       `json:"command"`
}

// WriteRepro leaves what is needed to ask the server the same thing again:
// repro/<code>-<request>.json and, as a script, repro/<code>-<request>.sh; for
// a finding about a pass, <code>-<phase>. A number follows where that exists.
func (c *Cycle) WriteRepro(r Repro) error {
	if c == nil {
		return nil
	}
	about := r.Request
	if about == "" {
		about = r.Finding.Phase
	}
	base := string(r.Finding.Code) + "-" + strings.NewReplacer("/", "_", ":", "_").Replace(about)
	name := base
	for n := 2; exists(filepath.Join(c.dir, "repro", name+".json")); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	if err := writeJSON(filepath.Join(c.dir, "repro", name+".json"), r); err != nil {
		return err
	}
	if r.Curl == "" {
		return nil
	}
	script := fmt.Sprintf("#!/bin/sh\n# %s\n%s\n", strings.ReplaceAll(r.Finding.String(), "\n", " "), r.Curl)
	path := filepath.Join(c.dir, "repro", name+".sh")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("writing artifacts: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
