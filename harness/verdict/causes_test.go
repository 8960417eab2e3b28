package verdict

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// TestEveryFindingHasCauses: whoever adds a code says what mostly lies behind it.
func TestEveryFindingHasCauses(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../row/finding.go", nil, 0)
	require.NoError(t, err)
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != "Code" {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		require.Contains(t, causes, row.Code(code))
		codes++
		return true
	})
	require.Equal(t, len(causes), codes)
	require.Equal(t, "not known", Causes("nothing of ours"))
}
