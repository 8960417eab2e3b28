package kvproof

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kvproof/kvproof"

// An importRule forbids packages to import others.
type importRule struct {
	why    string
	from   []string // packages that it binds
	except []string // … but not these
	never  []string // what they may not import
	allow  []string // … but these they may
	tests  bool     // it binds their tests, too
	deep   bool     // … and what they import through other packages of the module
}

// A goPackage is what go list says about one package.
type goPackage struct {
	ImportPath, Dir                    string
	Imports, TestImports, XTestImports []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// path is the package's directory in the module, "." for its root.
func (p goPackage) path() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// listPackages returns all packages of the module as a build with tags sees
// them.
func listPackages(t *testing.T, tags string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-tags="+tags, "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list -tags=%q: %s", tags, &stderr)
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err, "decoding what go list says")
		}
		packages = append(packages, p)
	}
	require.NotEmpty(t, packages, "go list names no package")
	return packages
}

// importViolations returns one sentence for each import that breaks a rule.
func importViolations(rules []importRule, packages []goPackage) []string {
	byPath := map[string]goPackage{}
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	var found []string
	for _, rule := range rules {
		for _, p := range packages {
			if !matchesAny(rule.from, p.ImportPath) || matchesAny(rule.except, p.ImportPath) {
				continue
			}
			report := func(imports []string, format string, args ...any) {
				for _, imported := range imports {
					if matchesAny(rule.never, imported) && !matchesAny(rule.allow, imported) {
						found = append(found, p.path()+fmt.Sprintf(format, append([]any{imported}, args...)...)+": "+rule.why)
					}
				}
			}
			report(p.Imports, " imports %s")
			if rule.tests {
				report(withoutOwn(p, slices.Concat(p.TestImports, p.XTestImports)), " imports %s in a test")
			}
			if rule.deep {
				for _, through := range reached(p, byPath) {
					report(through.Imports, " reaches %s through %s", through.path())
				}
			}
		}
	}
	return found
}

// withoutOwn drops the package itself, which its external tests import.
func withoutOwn(p goPackage, imports []string) []string {
	var others []string
	for _, imported := range imports {
		if imported != p.ImportPath {
			others = append(others, imported)
		}
	}
	return others
}

// reached returns the packages of the module that p imports, directly or
// through others.
func reached(p goPackage, byPath map[string]goPackage) []goPackage {
	var all []goPackage
	seen := map[string]bool{p.ImportPath: true}
	for queue := p.Imports; len(queue) > 0; queue = queue[1:] {
		if next, ours := byPath[queue[0]]; ours && !seen[queue[0]] {
			seen[queue[0]] = true
			all = append(all, next)
			queue = append(queue, next.Imports...)
		}
	}
	return all
}

// matchesAny says whether one of the patterns names the package, in the manner
// of the go command: a/... is a and everything below it.
func matchesAny(patterns []string, importPath string) bool {
	for _, pattern := range patterns {
		if pattern == "./..." {
			pattern = module + "/..."
		} else if rest, ours := strings.CutPrefix(pattern, "./"); ours {
			pattern = module + "/" + rest
		}
		prefix, tree := strings.CutSuffix(pattern, "/...")
		if importPath == prefix || tree && strings.HasPrefix(importPath, prefix+"/") {
			return true
		}
	}
	return false
}
