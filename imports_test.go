package kvproof

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildTags are the tags that add files to a build; see README.md, "The
// ladder". Every rule holds with none of them and with all of them.
const buildTags = "lmcache llamacpp vllm daser gpu"

// importRules says which way dependencies point. Paths that begin with ./ are
// packages of this module; /... takes in everything below.
var importRules = []importRule{
	{
		why:  "fixtures says what to run and never how, and shares no code with the miniature stack: the oracle would agree with the engine by construction",
		from: []string{"./fixtures/..."}, never: []string{"./..."}, allow: []string{"./fixtures/..."}, tests: true,
	},
	{
		why:  "the miniature stack is driven like a foreign server and knows nothing of the suite",
		from: []string{"./harness/mini/..."}, never: []string{"./..."}, allow: []string{"./harness/mini/...", "./harness/lmcmp/wire", "./harness/lmcmp/shm", "./cuda"}, tests: true,
	},
	{
		why:  "harness/row holds the types that the parts share",
		from: []string{"./harness/row"}, never: []string{"./..."}, allow: []string{"./fixtures"},
	},
	{
		why:  "cuda stands alone, so that it can be used without the harness",
		from: []string{"./cuda/..."}, never: []string{"./..."}, allow: []string{"./cuda/..."}, tests: true,
	},
	{
		why:  "dependencies point one way: the packages below harness know neither it nor what people run",
		from: []string{"./harness/...", "./fixtures/...", "./cuda/..."}, except: []string{"./harness"},
		never: []string{"./harness", "./cmd/...", "./bench_test"}, tests: true,
	},
	{
		why:  "findings are ordinary values: only the wrapper in harness turns them into failures of a test",
		from: []string{"./..."}, except: []string{"./harness"}, never: []string{"testing", "testing/..."},
	},
	{
		why:  "a verdict knows the server only by what it answered",
		from: []string{"./harness/verdict"}, never: []string{"./harness/mini/..."}, deep: true, tests: true,
	},
	{
		why:  "cycles run outside go test, too",
		from: []string{"./harness/run"}, never: []string{"testing", "testing/...", "./harness/mini/..."}, deep: true,
	},
	{
		why:  "device memory comes in through an interface",
		from: []string{"./harness/lmcmp/..."}, never: []string{"./cuda/..."}, deep: true,
	},
	{
		why:  "the module builds without cgo",
		from: []string{"./..."}, never: []string{"C"},
	},
	{
		why:  "assertions are for tests, and for the glue between them and the rest",
		from: []string{"./..."}, except: []string{"./harness"}, never: []string{"github.com/stretchr/testify/..."},
	},
	onlyIn("./harness/probe", "github.com/prometheus/common/..."),
	onlyIn("./harness/mini/...", "github.com/prometheus/client_golang/..."),
	onlyIn("./harness/launch/...", "github.com/ory/dockertest/..."),
	onlyIn("./harness/recipe", "github.com/BurntSushi/toml/..."),
	onlyIn("./harness/lmcmp/wire", "github.com/vmihailenco/msgpack/..."),
	onlyIn("./cuda/...", "github.com/ebitengine/purego/..."),
}

// plannedPackages have rules before they exist. Whoever adds one takes it off
// this list.
var plannedPackages []string

// onlyIn lets one part of the module import a heavy dependency. Tests are
// free: they may read with the library what the part writes.
func onlyIn(part, dependency string) importRule {
	return importRule{
		why:  "a heavy dependency is imported by one part of the module: " + part,
		from: []string{"./..."}, except: []string{part}, never: []string{dependency},
	}
}

func TestImportRules(t *testing.T) {
	for _, tags := range []string{"", buildTags} {
		t.Run("tags="+tags, func(t *testing.T) {
			packages := listPackages(t, tags)
			require.Empty(t, importViolations(importRules, packages))
		})
	}
}

// A rule about a package that was renamed would hold for ever.
func TestImportRulesNamePackagesThatExist(t *testing.T) {
	dirs := map[string]bool{".": true}
	for _, p := range listPackages(t, buildTags) {
		for dir := p.path(); dir != "."; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, planned := range plannedPackages {
		require.NotContains(t, dirs, planned, "%s exists now: take it off plannedPackages", planned)
		dirs[planned] = true
	}
	for _, rule := range importRules {
		for _, patterns := range [][]string{rule.from, rule.except, rule.never, rule.allow} {
			for _, pattern := range patterns {
				if path, ours := strings.CutPrefix(pattern, "./"); ours {
					path = strings.TrimSuffix(strings.TrimSuffix(path, "..."), "/")
					require.Contains(t, dirs, filepath.Clean(path), "no package lies at %s (rule: %s)", pattern, rule.why)
				}
			}
		}
	}
}

func TestImportViolationsAreFound(t *testing.T) {
	pkg := func(path string, imports ...string) goPackage {
		return goPackage{ImportPath: module + "/" + path, Imports: imports}
	}
	ours := func(path string) string { return module + "/" + path }
	for _, c := range []struct {
		name     string
		packages []goPackage
		want     string // part of the only violation; empty: none
	}{
		{"healthy", []goPackage{
			pkg("bench_test"), pkg("harness", "testing", ours("harness/run")), pkg("harness/run", ours("harness/row")),
			pkg("harness/row", ours("fixtures")), pkg("fixtures", "math/rand/v2"), pkg("cuda", "github.com/ebitengine/purego"),
		}, ""},
		{"testing in run", []goPackage{pkg("harness/metric", "testing")}, "harness/metric imports testing:"},
		{"testing/iotest is testing", []goPackage{pkg("harness/load", "testing/iotest")}, "harness/load imports testing/iotest:"},
		{"expfmt elsewhere", []goPackage{pkg("harness/load", "github.com/prometheus/common/expfmt")}, "harness/load imports github.com/prometheus/common/expfmt:"},
		{"beside mini is not in mini", []goPackage{pkg("harness/minimal", "github.com/prometheus/client_golang/prometheus")}, "harness/minimal imports github.com/prometheus/client_golang/prometheus:"},
		{"expfmt in probe", []goPackage{pkg("harness/probe", "github.com/prometheus/common/expfmt")}, ""},
		{"mini uses fixtures", []goPackage{pkg("harness/mini/engine", ours("fixtures"))}, "harness/mini/engine imports " + module + "/fixtures:"},
		{"in a test, too", []goPackage{{ImportPath: ours("harness/mini/tier"), XTestImports: []string{ours("harness/row")}}}, "harness/mini/tier imports " + module + "/harness/row in a test:"},
		{"fixtures uses row", []goPackage{pkg("fixtures", ours("harness/row"))}, "fixtures imports " + module + "/harness/row:"},
		{"verdict reaches mini", []goPackage{pkg("harness/verdict", ours("harness/load")), pkg("harness/load", ours("harness/mini")), pkg("harness/mini")}, "harness/verdict reaches " + module + "/harness/mini through harness/load:"},
		{"a test may assert", []goPackage{{ImportPath: ours("harness/load"), TestImports: []string{"testing", "github.com/stretchr/testify/require"}}}, ""},
		{"the product may not", []goPackage{pkg("harness/load", "github.com/stretchr/testify/require")}, "harness/load imports github.com/stretchr/testify/require:"},
		{"upwards", []goPackage{pkg("harness/load", ours("harness"))}, "harness/load imports " + module + "/harness:"},
		{"cgo", []goPackage{pkg("cuda", "C")}, "cuda imports C:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := importViolations(importRules, c.packages)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
		})
	}
}
