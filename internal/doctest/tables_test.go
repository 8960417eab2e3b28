package doctest_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/internal/doctest"
)

func TestTablesAreThoseOfTheCode(t *testing.T) {
	var flags, units, faults []string
	set := flag.NewFlagSet("suite", flag.ContinueOnError)
	harness.Register(set, "mini", "vllm")
	set.VisitAll(func(f *flag.Flag) { flags = append(flags, "-"+f.Name) })
	for _, u := range metric.Units() {
		units = append(units, u.Name)
	}
	for _, f := range append(fault.All(), fault.Daser()...) {
		faults = append(faults, string(f))
	}
	var cacheFaults []string
	for _, f := range lmcache.Faults() {
		cacheFaults = append(cacheFaults, string(f))
	}
	for _, c := range []struct {
		page, header string
		want         []string
	}{
		{"README.md", "flag", flags},
		{"docs/methods.md", "workload", fixtures.Names()},
		{"docs/methods.md", "unit", units},
		{"docs/methods.md", "finding", constants(t, "harness/row/finding.go", "Code")},
		{"docs/methods.md", "label", constants(t, "harness/row/finding.go", "Label")},
		{"docs/methods.md", "verdict", constants(t, "harness/verdict", "Verdict")},
		{"docs/methods.md", "fault", faults},
		{"docs/cacheserver.md", "fault of the cache server", cacheFaults},
	} {
		t.Run(c.page+" "+c.header, func(t *testing.T) {
			require.NotEmpty(t, c.want, "the code has none")
			column, err := doctest.FirstColumn(c.page, read(t, c.page), c.header)
			require.NoError(t, err)
			var got []string
			for _, cell := range column {
				got = append(got, cell.Text)
			}
			require.ElementsMatch(t, c.want, got, "left: the code's, right: the page's")
		})
	}
}

// A direction that the page has wrong would make a regression read as progress.
func TestUnitTableSaysWhatIsBetter(t *testing.T) {
	text := string(read(t, "docs/methods.md"))
	for _, u := range metric.Units() {
		require.Contains(t, text, "\n| `"+u.Name+"` | "+u.Better+" | ")
	}
}

// The findings beside each fault are those that the fault must give, in the
// words of the code, and behind them who reported such a thing.
func TestFaultTableSaysWhatFaultsGive(t *testing.T) {
	lines := strings.Split(string(read(t, "docs/methods.md")), "\n")
	for _, f := range append(fault.All(), fault.Daser()...) {
		findings := "none"
		if codes := f.Findings(); len(codes) > 0 {
			findings = "`" + strings.Join(codes, "`, `") + "`"
		}
		line := "| `" + string(f) + "` | " + f.About() + " | " + findings + " | "
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, line) && len(l) > len(line)+len(" |") }) {
			t.Errorf("docs/methods.md has no such line with who reported it behind:\n%s", line)
		}
	}
}

func TestCacheServerFaultTableSaysWhatIsWrong(t *testing.T) {
	text := string(read(t, "docs/cacheserver.md"))
	for _, f := range lmcache.Faults() {
		require.Contains(t, text, "\n| `"+string(f)+"` | "+f.About()+" |\n")
	}
}

// constants returns the values of the string constants of a type, from a file
// or from all files of a directory.
func constants(t *testing.T, path, typeName string) []string {
	t.Helper()
	var values []string
	for _, file := range goFiles(t, path) {
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				value := spec.(*ast.ValueSpec)
				if name, ok := value.Type.(*ast.Ident); !ok || name.Name != typeName {
					continue
				}
				for _, v := range value.Values {
					text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
					require.NoError(t, err)
					values = append(values, text)
				}
			}
		}
	}
	return values
}

// goFiles parses a file, or all files of a directory that are no tests.
func goFiles(t *testing.T, path string) []*ast.File {
	t.Helper()
	var files []*ast.File
	err := filepath.WalkDir(filepath.Join(root, path), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, files, "%s has no Go files", path)
	return files
}

// identifier is a code span that names something exported of a package.
var identifier = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)`)

func TestIdentifiersInThePagesExist(t *testing.T) {
	exported := map[string]bool{}
	packages := map[string]bool{}
	for _, dir := range []string{"fixtures", "harness"} {
		for _, file := range goFiles(t, dir) {
			packages[file.Name.Name] = true
			for name := range declared(file) {
				exported[file.Name.Name+"."+name] = true
			}
		}
	}
	for name, text := range pages(t) {
		for _, mention := range doctest.Spans(name, text) {
			m := identifier.FindStringSubmatch(mention.Text)
			if m != nil && packages[m[1]] {
				require.Contains(t, exported, m[0], "%s", mention)
			}
		}
	}
}

// declared returns the names of a file's functions, types, constants and
// variables.
func declared(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}
