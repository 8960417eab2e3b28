//go:build nogpu

package main

import "errors"

// place: the tag nogpu leaves the driver out, and with it the system's dynamic
// linker, so that the binary runs in an image of nothing else.
func (b *cacheBench) place() error {
	if b.mode == "gpu" {
		return errors.New("--mode gpu requires CUDA, which this binary was built without (tag nogpu)")
	}
	return nil
}
