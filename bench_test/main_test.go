// Package bench_test is the suite: one file per question. What each metric
// means is in docs/methods.md.
//
//	go test -bench . -blocksize=128     # here, on the miniature stack
//	go test -h                          # go test's flags; the suite's own: go test -args -h
package bench_test

import (
	"os"
	"testing"

	"github.com/kvproof/kvproof/harness"
)

var settings = harness.RegisterFlags(defaultStack, defaultEngine)

func TestMain(m *testing.M) {
	if dir := os.Getenv(standInVariable); dir != "" && playStandIn(dir) {
		return
	}
	os.Exit(harness.Main(m))
}
