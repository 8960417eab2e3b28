package recipe

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch"
)

// counted is a service that counts its stops.
type counted struct{ stops atomic.Int64 }

func (*counted) Err() error  { return nil }
func (*counted) Keep() error { return nil }
func (*counted) End() string { return "" }

func (c *counted) Stop(context.Context) error {
	c.stops.Add(1)
	return nil
}

// TestRestartAndClose: whoever looks at the services meanwhile sees the old or the
// new one, and one that came up after the close is ended all the same.
func TestRestartAndClose(t *testing.T) {
	beginning, goOn := make(chan struct{}), make(chan struct{})
	first, again := new(counted), new(counted)
	d := &deployed{dir: t.TempDir(), services: []started{{"engine", first, func(context.Context) (running, error) {
		close(beginning)
		<-goOn
		return again, nil
	}}}}
	require.ErrorContains(t, d.restart(t.Context(), "cache"), "has no such service")
	var restarted error
	var restarting sync.WaitGroup
	restarting.Go(func() { restarted = d.restart(t.Context(), "engine") })
	<-beginning
	require.NoError(t, d.died())
	require.NoError(t, d.close(t.Context()))
	close(goOn)
	restarting.Wait()
	require.ErrorContains(t, restarted, "was closed meanwhile")
	require.EqualValues(t, 1, again.stops.Load())
	require.Positive(t, first.stops.Load())

	d = &deployed{dir: t.TempDir(), services: []started{{"engine", first, func(context.Context) (running, error) { return again, nil }}}}
	for range 8 {
		restarting.Go(func() { _ = d.died() })
	}
	require.NoError(t, d.restart(t.Context(), "engine"))
	restarting.Wait()
	require.Same(t, again, d.snapshot()[0].running)
}

// A cache server that does not come up again can still be asked and stopped.
func TestRestartOfACacheServerFails(t *testing.T) {
	t.Setenv("KVPROOF_CACHE", t.TempDir())
	l, err := launch.New("")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
	service, err := l.Start(t.Context(), launch.Process{Name: "lmcache", Argv: []string{"sleep", "60"}, Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	r := &RunningLMCache{Service: service, begin: func(context.Context) (*launch.Service, error) { return nil, errors.New("its port is taken") }}
	require.ErrorContains(t, r.Restart(t.Context()), "restarting the cache server: its port is taken")
	require.Error(t, r.Err(), "it has ended")
	require.NoError(t, r.Stop(t.Context()))
}
