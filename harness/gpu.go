package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

// chooseGPU makes the choice of -gpu, once for all rows: of two alike GPUs the
// freest could be another one for each row.
func (s *Settings) chooseGPU(stack recipe.Stack, wrong func(flag string, value any, format string, args ...any)) gpu.Choice {
	given := s.given()["gpu"]
	switch {
	case stack.Engine == recipe.Attach && given:
		wrong("gpu", s.GPU, "a server that somebody else started has its GPU already")
		return gpu.Choice{}
	case stack.Engine == recipe.InProcess && !kvOnGPU && given && s.GPU != gpu.Auto:
		wrong("gpu", s.GPU, "nothing of -stack=%s runs on a GPU", s.Stack)
		return gpu.Choice{}
	case stack.Engine == recipe.Attach, stack.Engine == recipe.InProcess && !kvOnGPU:
		return gpu.Choice{}
	}
	choice, err := gpu.Choose(context.Background(), s.GPU)
	if err != nil && (given || stack.Engine == recipe.Docker && !errors.Is(err, gpu.ErrNone)) {
		wrong("gpu", s.GPU, "%w", err)
	}
	return choice // a run that asks for none, and finds none, may need none
}

// describeGPU puts what is known about the GPU of the run into the manifest.
func (s *session) describeGPU() {
	choice := s.selection.gpu
	if !choice.Made {
		return
	}
	facts, err := gpu.Read(s.ctx, choice.IDs)
	if err != nil {
		s.manifest.Notes = append(s.manifest.Notes, fmt.Sprintf("the facts of %s: %v", choice, err))
		return
	}
	s.manifest.GPU = &artifact.GPUs{Choice: s.settings.GPU, IDs: choice.IDs, Start: facts}
}

// describeGPUAgain does so after the last row, and returns what held the GPU down
// meanwhile, a sentence for each reason.
func (s *session) describeGPUAgain() (throttled []string, err error) {
	g := s.manifest.GPU
	if g == nil {
		return nil, nil
	}
	ctx, cancel := closeContext() // the run's own may be over
	defer cancel()
	if g.End, err = gpu.Read(ctx, g.IDs); err != nil {
		s.manifest.Notes = append(s.manifest.Notes, fmt.Sprintf("the facts of %s after the run: %v", s.selection.gpu, err))
	}
	throttled = gpu.Throttling(g.Start, g.End)
	s.manifest.Notes = append(s.manifest.Notes, throttled...)
	return throttled, s.artifacts.WriteManifest(s.manifest)
}

// watchGPU looks at the GPU of the run before a cycle, outside the clock. The
// function that it returns looks again, and labels a result that was measured while
// the GPU was held down.
func (s *session) watchGPU() func(*run.Result) {
	if s.manifest.GPU == nil {
		return func(*run.Result) {}
	}
	before, err := gpu.Read(s.ctx, s.selection.gpu.IDs)
	return func(result *run.Result) {
		if err != nil {
			return
		}
		after, err := gpu.Read(s.ctx, s.selection.gpu.IDs)
		if err == nil && len(gpu.Throttling(before, after)) > 0 {
			result.Labels = append(result.Labels, row.GPUThrottled)
		}
	}
}

// giveBackTimeout is how long a driver may take to free the memory of an engine
// that has ended.
const giveBackTimeout = time.Minute

// tookGPU notes that a server which has just started holds memory of the GPU. Rows
// that do not are left up, and what other programs take is no concern of theirs. Where
// nothing tells, as with parts of a GPU (MIG), each is taken to hold some.
func (s *session) tookGPU() error {
	if !s.selection.gpu.Made || s.onGPU {
		return nil
	}
	now, err := s.selection.gpu.Memories(s.ctx)
	s.onGPU = err == nil && (!gpu.Known(now) || len(gpu.Holding(s.memories, now)) > 0)
	return err
}

// makeRoom ends the servers that are up where they hold memory of the GPU of the
// run, and waits until it has that back: the next engine would find too little.
func (s *session) makeRoom() error {
	choice := s.selection.gpu
	if !choice.Made {
		return nil
	}
	now, err := choice.Memories(s.ctx)
	if err != nil {
		return err
	}
	if s.memories == nil {
		s.memories = now
	}
	if !s.onGPU || gpu.Known(now) && len(gpu.Holding(s.memories, now)) == 0 {
		return nil
	}
	ctx, cancel := closeContext()
	defer cancel()
	var errs []error
	for _, l := range slices.Backward(s.lives) {
		if l.server != nil {
			s.progress.show("ending " + l.row)
			errs = append(errs, l.server.Close(ctx))
		}
	}
	// What did not start is not tried again; what is asked for again starts again.
	s.lives = slices.DeleteFunc(s.lives, func(l liveServer) bool { return l.server != nil })
	s.onGPU = false
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return gpu.Wait{
		Choice: choice, Before: s.memories, Timeout: giveBackTimeout, Every: 500 * time.Millisecond, Show: s.progress.show,
	}.GivenBack(s.ctx)
}
