//go:build gpu

package bench_test

import "github.com/kvproof/kvproof/harness"

func init() { harness.PlaceKVOnGPU() }
