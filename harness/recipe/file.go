package recipe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/kvproof/kvproof/harness/row"
)

// A File describes a row as data: what is started for it, how its cache goes
// cold, what settled means, which law its hits follow and which counters are
// its witnesses. The built-in rows of real engines are written in the same form
// as a file for -rowfile. docs/backends.md is its reference.
type File struct {
	Row      string        `toml:"row"`
	About    string        `toml:"about"`
	Reuse    string        `toml:"reuse"` // reuse_mode of the manifest: none, prefix, chunk
	Features []row.Feature `toml:"features"`
	Exact    bool          `toml:"exact"`      // equal inputs give equal bits, whatever the batch
	Rounding float64       `toml:"rounding"`   // logprobs that are no further apart are equal, in nats
	Law      string        `toml:"law"`        // of usage
	Blocks   string        `toml:"block-size"` // where the engine tells it: cache_config_info (the default), none
	Skip     string        `toml:"skip"`       // how a request skips the cache: cache_prompt, daser; empty: it cannot

	Model  *ModelFile `toml:"model"` // of an engine that brings its own; nil: that of -model
	Cold   ColdFile   `toml:"cold"`
	Settle SettleFile `toml:"settle"`

	KVTransferConfig map[string]any `toml:"kv-transfer-config"`
	Services         []ServiceFile  `toml:"service"` // in the order in which they start
	Witnesses        []WitnessFile  `toml:"witness"`
}

// A ModelFile is the model of an engine that brings its own.
type ModelFile struct {
	Name       string `toml:"name"`    // as the engine's API names it
	Context    int    `toml:"context"` // tokens
	Vocab      int    `toml:"vocab"`
	TokenBytes int    `toml:"kv-bytes-per-token"` // 0: unknown, and with it the witness of bytes
}

// A ColdFile says how the cache of a row becomes empty.
type ColdFile struct {
	How   string `toml:"how"`   // nothing, fresh, reset, reset-external, files, documents
	About string `toml:"about"` // for the manifest
}

// A SettleFile says when what was stored can be read.
type SettleFile struct {
	Idle   []string `toml:"idle"`   // gauges of the engine that must be 0
	Status string   `toml:"status"` // whose status must be quiet as well: lmcache, or daser, which drains; empty: nobody's
}

// A ServiceFile is one thing to start. With a program, argv, environment and
// the rest are that built-in program's where they are not given here.
type ServiceFile struct {
	Name    string            `toml:"name"` // engine, or a name of a cache server
	Program string            `toml:"program"`
	Argv    []string          `toml:"argv"`
	Command string            `toml:"command"` // in place of the first of argv
	Args    []string          `toml:"args"`    // after argv
	Env     map[string]string `toml:"env"`
	Ports   []string          `toml:"ports"`   // their names; the first is ${port}
	URL     string            `toml:"url"`     // base of its HTTP side
	Metrics string            `toml:"metrics"` // page with its counters; empty: the URL's /metrics
	Ready   string            `toml:"ready"`   // URL that answers 200, or host:port that accepts
	IsTrue  string            `toml:"is-true"` // field of that answer that must be true as well
	Socket  string            `toml:"socket"`  // of DaseR's IPC, over which it tells what it runs with
	Refusal []string          `toml:"refusal"` // parts of log lines that say it will not come up
	Timeout duration          `toml:"timeout"`
	Closes  bool              `toml:"closes-connections"` // after each answer, without saying so
	Grace   duration          `toml:"grace"`
	Install string            `toml:"install"`        // how to get it, where it is missing
	KVValue int               `toml:"kv-value-bytes"` // of a value of KV, by process; 0: as many as the model's have

	Container *ContainerFile `toml:"container"` // how it runs in one; nil: it does not
}

// A ContainerFile says how a service runs in a container, on the host's network.
type ContainerFile struct {
	Image      string            `toml:"image"`
	Entrypoint []string          `toml:"entrypoint"` // empty: the image's
	Env        map[string]string `toml:"env"`        // beside the service's
	Argv       []string          `toml:"argv"`       // in place of the service's; its args follow
	Binds      []string          `toml:"binds"`      // host path:path:ro
	IPC        string            `toml:"ipc"`        // host, where services share memory
	ShmGiB     int64             `toml:"shm-gib"`    // size of /dev/shm; 0: the container engine's default
	GPU        bool              `toml:"gpu"`        // it gets the GPUs of the run
}

// A WitnessFile is an account of hit tokens by counters.
type WitnessFile struct {
	Name      string            `toml:"name"`
	Probe     string            `toml:"probe"` // name of the service whose page has it
	Hits      string            `toml:"hits"`
	Queries   []string          `toml:"queries"` // counters that sum to what was asked
	Labels    map[string]string `toml:"labels"`  // of the hits
	Since     string            `toml:"since"`   // gauge: while it is up, a counter that is not there yet is 0
	BytesEach bool              `toml:"bytes"`   // hits are bytes of KV, not tokens
	Law       string            `toml:"law"`     // empty: that of usage
	Asked     string            `toml:"asked"`   // prompt, units, or empty: not known
	Optional  bool              `toml:"optional"`
}

type duration struct{ time.Duration }

// UnmarshalText reads "90s".
func (d *duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// ReadFile reads the row file at path. Unknown keys are refused.
func ReadFile(path string) (File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("reading a row file: %w", err)
	}
	return parseFile(path, string(data))
}

func parseFile(name, text string) (File, error) {
	var f File
	if err := decodeTOML(name, text, &f); err != nil {
		return File{}, err
	}
	for i := range f.Services {
		if err := f.Services[i].inherit(); err != nil {
			return File{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := f.check(); err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// decodeTOML decodes text and refuses keys that nothing reads: a word that is
// spelled wrong would be a setting that is not in force.
func decodeTOML(name, text string, into any) error {
	meta, err := toml.Decode(text, into)
	var parse toml.ParseError
	switch {
	case errors.As(err, &parse):
		return fmt.Errorf("%s:%d: %s", name, parse.Position.Line, parse.Message)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	var names []string
	for _, key := range meta.Undecoded() {
		if key[0] != "kv-transfer-config" { // the connector's own words
			names = append(names, key.String())
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%s: nothing reads %s", name, strings.Join(names, ", "))
	}
	return nil
}

// check says what a file lacks, everything at once.
func (f File) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(key, value string, values ...string) {
		if !slices.Contains(values, value) {
			wrong("%s is %q, want one of %s", key, value, strings.Join(values, ", "))
		}
	}
	if !slugPattern.MatchString(f.Row) {
		wrong("row is %q, want a name such as my-connector: lower-case letters, digits, dots and dashes, not ending in digits after a dash", f.Row)
	}
	oneOf("reuse", f.Reuse, "none", "prefix", "chunk")
	oneOf("law", f.Law, lawNames()...)
	oneOf("cold.how", f.Cold.How, "nothing", "fresh", "reset", "reset-external", "files", "documents")
	oneOf("settle.status", f.Settle.Status, "", "lmcache", "daser")
	for _, feature := range f.Features {
		if !slices.Contains(fileFeatures, feature) {
			wrong("features has %q, want some of %v", feature, fileFeatures)
		}
	}
	has := func(feature row.Feature) bool { return slices.Contains(f.Features, feature) }
	if has(row.Reset) == slices.Contains([]string{"nothing", "fresh", "documents"}, f.Cold.How) {
		wrong("the feature reset and cold.how = %q contradict each other: reset is for what is emptied and proved to be", f.Cold.How)
	}
	if has(row.Documents) != (f.Cold.How == "documents") || has(row.Documents) && f.Settle.Status != "daser" {
		wrong("the feature documents goes with cold.how = \"documents\" and settle.status = \"daser\"")
	}
	oneOf("block-size", f.Blocks, "", "cache_config_info", "none")
	if m := f.Model; m != nil && (m.Name == "" || m.Context <= 0 || m.Vocab <= 0 || m.TokenBytes < 0) {
		wrong("model needs a name, and a positive context and vocab")
	}
	oneOf("skip", f.Skip, "", "cache_prompt", "daser")
	if has(row.SkipReuse) != (f.Skip != "") {
		wrong("the feature skip-reuse and skip = %q contradict each other", f.Skip)
	}
	if has(row.Reuse) != (f.Law != "none") {
		wrong("the feature reuse and law = %q contradict each other", f.Law)
	}
	names := make([]string, 0, len(f.Services))
	for _, s := range f.Services {
		if slices.Contains(names, s.Name) || s.Name == "" {
			wrong("service %q: each one needs a name of its own", s.Name)
		}
		names = append(names, s.Name)
		if len(s.Argv) == 0 && (s.Container == nil || s.Container.Image == "") || s.Ready == "" || len(s.Ports) == 0 {
			wrong("service %s needs argv or the image of a container, ports and ready", s.Name)
		}
	}
	if !slices.Contains(names, engineProbe) {
		wrong("no service is called engine")
	}
	for _, w := range f.Witnesses {
		if w.Name == "" || w.Hits == "" {
			wrong("a witness needs a name and hits")
		}
		if !slices.Contains(names, w.Probe) {
			wrong("witness %s: probe is %q, want a service: %s", w.Name, w.Probe, strings.Join(names, ", "))
		}
		oneOf("witness "+w.Name+": law", w.Law, append(lawNames(), "")...)
		oneOf("witness "+w.Name+": asked", w.Asked, "", "prompt", "units")
	}
	return errors.Join(errs...)
}

// fileFeatures are those that a file can give a row.
var fileFeatures = []row.Feature{row.Streaming, row.Logprobs, row.Reuse, row.Reset, row.SkipReuse, row.Salts, row.StopIDs, row.Restarts, row.Unshared, row.Documents, row.Lossy}
