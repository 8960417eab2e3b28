package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/gpu/standin"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
)

// Where nobody tells what memory is in use, as with parts of a GPU, a server that was
// started is taken to hold some.
func TestMakeRoomWhereNothingTells(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, standin.Write(dir, standin.GPUs(4), ""))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	ended := 0
	server := &row.Server{Close: func(context.Context) error {
		ended++
		return nil
	}}
	s := &session{ctx: t.Context(), progress: &progress{}, selection: selection{gpu: gpu.Choice{IDs: []string{"MIG-1"}, Made: true}}}
	for started := range 3 {
		require.NoError(t, s.makeRoom())
		require.Equal(t, started, ended)
		s.lives = append(s.lives, liveServer{row: "one of them", server: server})
		require.NoError(t, s.tookGPU())
	}
}

// A driver that does not answer is no machine without a GPU to engines in containers.
func TestDriverInTrouble(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	s := selected(t)
	var wrong []string
	choose := func(engine recipe.Kind) []string {
		wrong = nil
		s.settings.chooseGPU(recipe.Stack{Engine: engine}, func(flag string, _ any, format string, args ...any) {
			wrong = append(wrong, "-"+flag+": "+fmt.Errorf(format, args...).Error())
		})
		return wrong
	}
	require.Empty(t, choose(recipe.Docker), "no nvidia-smi")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\necho driver/library version mismatch\nexit 18\n"), 0o755))
	require.Len(t, choose(recipe.Docker), 1)
	require.Contains(t, wrong[0], "driver/library version mismatch")
	require.Empty(t, choose(recipe.Process))
}

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
		if !holds {
			continue
		}
		require.Equal(t, []liveServer{{row: "failed", err: context.Canceled}}, s.lives)
		third := liveServer{row: "third", server: &row.Server{Close: func(context.Context) error {
			return errors.New("it holds nothing and was ended")
		}}}
		s.lives = append(s.lives, third)
		require.NoError(t, s.tookGPU())
		uses(60000) // another program
		require.NoError(t, s.makeRoom())
		require.Len(t, s.lives, 2)
	}
}
