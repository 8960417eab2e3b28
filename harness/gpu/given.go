package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Slack is how much more than before memory may be in use that counts as given
// back, in MiB: less than one context of CUDA.
const Slack = 256

// Known says whether any of them tells how much memory is in use.
func Known(memories []Memory) bool {
	return slices.ContainsFunc(memories, func(m Memory) bool { return m.Known })
}

// Holding are the GPUs that use more memory than they did before, by more than
// [Slack].
func Holding(before, now []Memory) (holding []Memory) {
	for _, b := range before {
		for _, n := range now {
			if n.UUID == b.UUID && b.Known && n.Known && n.Used > b.Used+Slack {
				holding = append(holding, n)
			}
		}
	}
	return holding
}

// Memories reads the memory of the GPUs of the choice.
func (c Choice) Memories(ctx context.Context) ([]Memory, error) {
	all, err := Memories(ctx)
	if err != nil {
		return nil, err
	}
	var memories []Memory
	for _, m := range all {
		if chosen(c.IDs, m.Index, m.UUID) {
			memories = append(memories, m)
		}
	}
	return memories, nil
}

// Wait is how the memory of a row is waited for.
type Wait struct {
	Choice  Choice
	Before  []Memory // in use then is in use for ever
	Timeout time.Duration
	Every   time.Duration
	Show    func(string) // progress
}

// GivenBack waits until the GPUs use about as much memory as they did before: an
// engine that has ended may hold it for a while, and the next one would see too
// little and fail, or take less for its cache. The error names who holds it.
func (w Wait) GivenBack(ctx context.Context) error {
	deadline, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		now, err := w.Choice.Memories(ctx)
		if err != nil {
			return fmt.Errorf("reading what memory is in use on %s: %w", w.Choice, err)
		}
		holding := Holding(w.Before, now)
		if len(holding) == 0 {
			return nil
		}
		m := holding[0]
		w.Show(fmt.Sprintf("waiting until GPU %s has its memory back: %d of %d MiB in use", m.Index, m.Used, m.Total))
		select {
		case <-tick.C:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return w.refuse(ctx, m)
		}
	}
}

// refuse says who holds the memory of a GPU.
func (w Wait) refuse(ctx context.Context, m Memory) error {
	var used int64
	for _, b := range w.Before {
		if b.UUID == m.UUID {
			used = b.Used
		}
	}
	who := "nvidia-smi names no process on it"
	if processes, err := processesOn(ctx, []string{m.UUID}); err == nil && len(processes) > 0 {
		var names []string
		for _, p := range processes {
			names = append(names, p.String())
		}
		who = "on it: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("GPU %s has %d MiB in use %s after the row before has ended, and had %d before the first row; %s: end that, or take another GPU by -gpu",
		m.Index, m.Used, w.Timeout, used, who)
}
