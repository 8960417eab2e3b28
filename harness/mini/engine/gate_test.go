package engine

import (
	"context"
	"testing"
)

// A gate is a store whose Lookup lets requests through one by one, so that a
// test decides when a running sequence goes on.
type gate struct {
	*memStore
	entered chan string   // ids, as they come
	open    chan struct{} // a value lets one through; closed, all
}

func newGate() *gate {
	g := &gate{memStore: newMemStore(16, 16), entered: make(chan string, 100), open: make(chan struct{})}
	g.lookup = func(ctx context.Context, found int) (int, error) {
		select {
		case <-g.open:
			return found, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return g
}

// accepted waits until so many requests run or wait.
func accepted(t *testing.T, e *Engine, n int) {
	t.Helper()
	eventually(t, func() bool { l := e.load(); return l.running+l.waiting == n }, "the request is accepted")
}

// pausing is a store at which a request stops after its first token, until
// goOn is called.
func pausing() (store *memStore, goOn func()) {
	store = newMemStore(16, 16)
	resume := make(chan struct{})
	store.onStore = func() { <-resume }
	return store, func() { close(resume) }
}

// cancelled says that all requests of an engine have lost their clients.
func cancelled(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.active {
		if s.ctx.Err() == nil {
			return false
		}
	}
	return true
}
