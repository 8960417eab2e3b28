package recipe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
)

// What a token's KV takes is what the row's own engine keeps it in, by process; an
// engine in a container, and one that brings its model, keep it as the model says.
func TestTokenBytes(t *testing.T) {
	model := Model{Name: "m", Dir: "/m", Facts: fixtures.ModelFacts{KVHeads: 2, HeadDim: 8, Layers: 3, DTypeBytes: 2}}
	const values = 2 * 2 * 8 * 3
	brought := ModelFile{Name: "m", Context: 1, Vocab: 1, TokenBytes: 200}.model()
	for _, c := range []struct {
		name, row string
		docker    bool
		model     Model
		change    func(*ServiceFile)
		want      int
	}{
		{name: "in float32", row: "baseline", model: model, want: 4 * values},
		{name: "in a type of the row's own", row: "daser-prefix", model: model, want: 2 * values},
		{name: "of a file", row: "baseline", model: model, change: func(s *ServiceFile) { s.KVValue = 1 }, want: values},
		{name: "of a file that says nothing", row: "baseline", model: model, change: func(s *ServiceFile) { s.KVValue = 0 }, want: 2 * values},
		{name: "in a container", row: "baseline", docker: true, model: model, want: 2 * values},
		{name: "brought", row: "baseline", model: brought, want: 200},
		{name: "unknown", row: "baseline", model: Model{Name: "m", Dir: "/m", Sizeless: true, Facts: model.Facts}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, ok, err := builtIn("vllm", c.row)
			require.NoError(t, err)
			require.True(t, ok)
			for i := range f.Services {
				if f.Services[i].Name == engineProbe && c.change != nil {
					c.change(&f.Services[i])
				}
			}
			d := Deployment{Engine: "vllm", Docker: c.docker, Model: c.model}
			bytes, err := d.Row(f).(deployedRow).tokenBytes()
			require.NoError(t, err)
			require.Equal(t, c.want, bytes)
		})
	}
	require.Equal(t, 4, Deployment{Engine: "vllm"}.Sized(model).Facts.DTypeBytes, "of the plan")
	require.Equal(t, brought, Deployment{Engine: "vllm"}.Sized(brought))
}
