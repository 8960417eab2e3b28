//go:build llamacpp || vllm || lmcache

package bench_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/kvproof/kvproof/harness/row"
)

// beforeWarm lets something happen before the first warm request, which a
// goroutine of the load sends; what it returned is known afterwards.
func beforeWarm(t *testing.T, server *row.Server, act func() error) (result func() error) {
	healthy, err := server.Client, errors.New("no warm request was sent")
	t.Cleanup(func() { server.Client = healthy })
	server.Client = &interrupting{Client: healthy, before: sync.OnceFunc(func() { err = act() })}
	return func() error { return err }
}
