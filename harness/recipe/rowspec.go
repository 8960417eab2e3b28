package recipe

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// slugPattern is what a row may be called: its name is a value in benchmark
// names, where Go reads final digits as GOMAXPROCS.
var slugPattern = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9.-]*[a-z.])?[0-9]*$`)

// laws are the hit laws that a file can name.
var laws = map[string]func(b int) fixtures.Law{
	"none":             func(int) fixtures.Law { return fixtures.NoReuse() },
	"vllm":             fixtures.VLLMLaw,
	"lmcache":          fixtures.LMCacheLaw,
	"lookup":           fixtures.LookupLaw,
	"file-connector":   fixtures.FileConnectorLaw,
	"all-but-the-last": func(int) fixtures.Law { return fixtures.AllButTheLastLaw() },
	"documents":        func(int) fixtures.Law { return fixtures.DocumentLaw() },
	"document-lookup":  func(int) fixtures.Law { return fixtures.DocumentLookupLaw() },
}

func lawNames() []string { return slices.Sorted(maps.Keys(laws)) }

// spec is the file's row as the rest of the package knows one.
func (f File) spec() spec {
	s := spec{
		name: f.Row, features: f.Features, reuse: f.Reuse, cold: f.Cold.About,
		law: laws[f.Law], idle: f.Settle.Idle, coldHow: f.Cold.How, exact: f.Exact, rounding: f.Rounding, skipPrompt: f.Skip == "cache_prompt",
		witnesses: func(b, tokenBytes int) []row.Witness {
			witnesses := make([]row.Witness, len(f.Witnesses))
			for i, w := range f.Witnesses {
				witnesses[i] = w.witness(f.Law, b, tokenBytes)
			}
			return witnesses
		},
	}
	switch f.Settle.Status {
	case "lmcache":
		s.backend = func(url string, client *http.Client) backend { return lmcacheServer{url, client} }
	case "daser":
		s.backend = func(url string, _ *http.Client) backend { return newDaser(url, s.Supports(row.Documents)) }
	}
	if f.Skip == "daser" {
		s.skip = daserSkip
	}
	return s
}

func (w WitnessFile) witness(usage string, b, tokenBytes int) row.Witness {
	law := w.Law
	if law == "" {
		law = usage
	}
	count := probe.Of(w.Hits, w.Labels, w.Queries)
	if w.BytesEach {
		count = probe.Per(tokenBytes, count)
	}
	if w.Since != "" {
		count = probe.FromFirstUse(w.Since, count)
	}
	from := backendProbe
	if w.Probe == engineProbe {
		from = engineProbe
	}
	witness := row.Witness{Name: w.Name, Source: w.Hits, Probe: from, Required: !w.Optional, Law: laws[law](b), Count: count}
	switch w.Asked {
	case "prompt":
		witness.Asked = wholePrompt
	case "units":
		witness.Asked = func(prompt int) int { return prompt / b * b }
	}
	return witness
}

// inherit takes from a built-in program what the service does not say itself.
func (s *ServiceFile) inherit() error {
	if s.Program == "" {
		return nil
	}
	p, ok := programs()[s.Program]
	if !ok {
		return fmt.Errorf("service %s: unknown program %q; the programs are %v", s.Name, s.Program, slices.Sorted(maps.Keys(programs())))
	}
	if len(s.Argv) == 0 {
		s.Argv = slices.Clone(p.Argv)
	}
	if s.Command != "" && len(s.Argv) > 0 {
		s.Argv[0] = s.Command
	}
	if len(s.Ports) == 0 {
		s.Ports = p.Ports
	}
	s.URL, s.Metrics = cmp.Or(s.URL, p.URL), cmp.Or(s.Metrics, p.Metrics)
	s.Ready, s.Install = cmp.Or(s.Ready, p.Ready), cmp.Or(s.Install, p.Install)
	s.IsTrue, s.Socket = cmp.Or(s.IsTrue, p.IsTrue), cmp.Or(s.Socket, p.Socket)
	s.KVValue = cmp.Or(s.KVValue, p.KVValue)
	s.Closes = s.Closes || p.Closes
	if s.Container == nil {
		s.Container = p.Container
	}
	env := maps.Clone(p.Env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, s.Env)
	s.Env = env
	s.Refusal = append(slices.Clone(p.Refusal), s.Refusal...)
	if s.Timeout.Duration == 0 {
		s.Timeout = p.Timeout
	}
	if s.Grace.Duration == 0 {
		s.Grace = p.Grace
	}
	return nil
}
