package kvproof

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// waits are the functions of package time that let time pass.
var waits = []string{"Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// In the miniature stack time passes because something is computed. Only a
// planted fault may wait, or TTFT would be scripted.
func TestOnlyFaultsWaitInMini(t *testing.T) {
	for _, p := range listPackages(t, buildTags) {
		if !matchesAny([]string{"./harness/mini/..."}, p.ImportPath) || matchesAny([]string{"./harness/mini/fault"}, p.ImportPath) {
			continue
		}
		for _, name := range p.GoFiles {
			require.Empty(t, callsOf(t, filepath.Join(p.Dir, name), nil, waits))
		}
	}
}

// A test waits for a condition, not for a while. In a bubble of
// testing/synctest sleeping costs nothing and is exact.
func TestNoTestSleeps(t *testing.T) {
	for _, p := range listPackages(t, buildTags) {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			require.Empty(t, callsOf(t, filepath.Join(p.Dir, name), nil, []string{"Sleep"}))
		}
	}
}

// callsOf returns where a Go file names one of the functions of package time,
// called or not. Files that import testing/synctest are free. src stands in
// for the file's text where it is not nil.
func callsOf(t *testing.T, path string, src any, functions []string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, 0)
	require.NoError(t, err)
	timeName := ""
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		switch imported {
		case "testing/synctest":
			return nil
		case "time":
			timeName = "time"
			if spec.Name != nil {
				timeName = spec.Name.Name
			}
		}
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := selector.X.(*ast.Ident)
		if ok && timeName != "" && x.Name == timeName && slices.Contains(functions, selector.Sel.Name) {
			found = append(found, fmt.Sprintf("%s: time.%s", files.Position(node.Pos()), selector.Sel.Name))
		}
		return true
	})
	return found
}

func TestCallsOf(t *testing.T) {
	for _, c := range []struct {
		name, imports, body string
		want                int
	}{
		{"none", `"time"`, "time.Now()", 0},
		{"a call", `"time"`, "time.Sleep(1)", 1},
		{"under another name", `clock "time"`, "clock.Sleep(1)", 1},
		{"as a value", `"time"`, "wait := time.After; wait(1)", 1},
		{"another package", `time "example.org/time"`, "time.Sleep(1)", 0},
		{"virtual time", "\"time\"\nimport \"testing/synctest\"", "time.Sleep(1)", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := "package p\nimport " + c.imports + "\nfunc f() { " + c.body + " }\n"
			require.Len(t, callsOf(t, "p.go", src, waits), c.want)
		})
	}
}
