package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The values of -gpu that are no index.
const (
	Auto    = "auto"    // the largest, and of equal ones that with the most free memory
	Current = "current" // what CUDA_VISIBLE_DEVICES says
)

const (
	visibleVariable = "CUDA_VISIBLE_DEVICES"
	orderVariable   = "CUDA_DEVICE_ORDER"
)

// A Choice is the GPUs of a run, the same for all of its rows.
type Choice struct {
	IDs  []string // indices in the order of PCI bus ids, or UUIDs; none: all
	Made bool     // there are GPUs to choose from
}

// Choose takes the GPU that value asks for: [Auto], [Current], or an index. The
// error says what would be right.
func Choose(ctx context.Context, value string) (Choice, error) {
	if value != Auto && value != Current && (value == "" || strings.Trim(value, "0123456789") != "") {
		return Choice{}, errors.New("want auto, current, or the index of a GPU as nvidia-smi counts them")
	}
	memories, err := Memories(ctx)
	if err != nil {
		return Choice{}, err
	}
	if len(memories) == 0 {
		return Choice{}, errors.New("nvidia-smi sees no GPU on this machine")
	}
	switch value {
	case Auto:
		best := slices.MaxFunc(memories, func(a, b Memory) int {
			return cmp.Or(cmp.Compare(a.Total, b.Total), cmp.Compare(a.Free, b.Free))
		})
		return Choice{IDs: []string{best.Index}, Made: true}, nil
	case Current:
		return current(memories)
	}
	return pick(memories, value)
}

// current is the choice that was made around this process.
func current(memories []Memory) (Choice, error) {
	visible, set := os.LookupEnv(visibleVariable)
	if !set {
		return Choice{Made: true}, nil
	}
	if strings.TrimSpace(visible) == "" {
		return Choice{}, fmt.Errorf("%s is empty, which hides every GPU: unset it, or give it one", visibleVariable)
	}
	choice, err := pick(memories, strings.Split(visible, ",")...)
	if err != nil {
		return Choice{}, fmt.Errorf("%s=%s: %w", visibleVariable, visible, err)
	}
	return choice, nil
}

// pick is the choice of some ids, each of which must be there.
func pick(memories []Memory, ids ...string) (Choice, error) {
	c := Choice{Made: true}
	for _, id := range ids {
		id = strings.TrimSpace(id)
		if !strings.HasPrefix(id, "MIG-") && !slices.ContainsFunc(memories, func(m Memory) bool { return isGPU(id, m.Index, m.UUID) }) {
			var there []string
			for _, m := range memories {
				there = append(there, m.Index)
			}
			return Choice{}, fmt.Errorf("there is no GPU %q; nvidia-smi sees %s", id, strings.Join(there, ", "))
		}
		c.IDs = append(c.IDs, id)
	}
	return c, nil
}

// Pin makes the choice that of this process, if it has not asked the driver for
// anything yet, and of those that it starts.
func (c Choice) Pin() error {
	if !c.Made {
		return nil
	}
	err := os.Setenv(orderVariable, "PCI_BUS_ID")
	if len(c.IDs) > 0 {
		err = errors.Join(err, os.Setenv(visibleVariable, strings.Join(c.IDs, ",")))
	}
	return err
}

// String names the GPUs.
func (c Choice) String() string {
	switch {
	case !c.Made:
		return "none"
	case len(c.IDs) == 0:
		return "all GPUs"
	}
	return "GPU " + strings.Join(c.IDs, ", ")
}
