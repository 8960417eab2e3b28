package harness

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/gpu/standin"
	"github.com/kvproof/kvproof/harness/row"
)

// Servers that hold memory of the GPU end before the next one starts. Those that do
// not stay up, whatever other programs take meanwhile.
func TestMakeRoom(t *testing.T) {
	for _, holds := range []bool{false, true} {
		dir := t.TempDir()
		uses := func(mib int) { require.NoError(t, standin.Write(dir, standin.GPUs(mib), "")) }
		uses(4)
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		ended := false
		server := &row.Server{Close: func(context.Context) error {
			ended = true
			uses(4)
			return nil
		}}
		s := &session{ctx: t.Context(), progress: &progress{}, selection: selection{gpu: gpu.Choice{IDs: []string{"0"}, Made: true}}}
		require.NoError(t, s.makeRoom())
		if holds {
			uses(60000)
		}
		s.lives = []liveServer{{row: "first", server: server}, {row: "failed", err: context.Canceled}}
		require.NoError(t, s.tookGPU())
		uses(60000)
		require.NoError(t, s.makeRoom())
		require.Equal(t, holds, ended)
		if holds {
			require.Equal(t, []liveServer{{row: "failed", err: context.Canceled}}, s.lives)
		}
	}
}
