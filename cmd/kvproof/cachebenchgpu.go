//go:build !nogpu

package main

import (
	"errors"
	"fmt"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/gpukv"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

// place asks NVIDIA's driver where there is one.
func (b *cacheBench) place() error { return b.placeKV(cuda.Load) }

// placeKV decides where the KV lies: on a GPU where load finds one, unless the
// mode or the transfer says otherwise. A driver that is there and does not work
// is an error, and never the other mode.
func (b *cacheBench) placeKV(load func() (*cuda.Driver, error)) error {
	if b.mode == "cpu" || b.mode == "auto" && b.Transfer == lmcmp.EngineDriven {
		return nil
	}
	driver, err := load()
	switch {
	case errors.Is(err, cuda.ErrNoDriver) && b.mode == "auto":
		return nil
	case errors.Is(err, cuda.ErrNoDriver):
		return fmt.Errorf("--mode gpu requires CUDA: %w; it needs NVIDIA's driver (in a container, with the capability compute) and a device that CUDA_VISIBLE_DEVICES does not hide", err)
	case err != nil:
		return fmt.Errorf("--mode %s: %w; --mode cpu does without a GPU", b.mode, err)
	}
	b.GPU = true
	b.NewMemory = func(_, worker int) (lmcmp.Memory, error) { return gpukv.New(driver, worker, b.Shape) }
	return nil
}
