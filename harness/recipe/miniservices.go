package recipe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/row"
)

// miniServices are what runs for a row of the miniature stack: the stack, and a
// real cache server behind it where the row has one.
type miniServices struct {
	row    builtRow
	env    row.Env
	config mini.Config
	files  string // directory of the cache server's L2, which outlives a restart; empty: there is none
	stack  *mini.Stack
	cache  *RunningLMCache
}

func (m *miniServices) start(ctx context.Context) (err error) {
	if m.row.name == mini.LMCache && m.config.L2Dir != "" {
		if err := os.MkdirAll(m.config.L2Dir, 0o755); err != nil {
			return fmt.Errorf("making the directory of L2: %w", err)
		}
		if m.files, err = os.MkdirTemp(m.config.L2Dir, "kvproof-l2-"); err != nil {
			return fmt.Errorf("making a directory for L2: %w", err)
		}
		m.config.L2Dir, m.config.KeepL2 = m.files, true
	}
	if m.row.real() {
		if m.cache, err = m.row.startCache(ctx, m.env, m.config.L1Bytes, m.files); err != nil {
			return err
		}
		m.config.LMCacheAddr, m.config.LMCacheHTTP = m.cache.Endpoints.RPC, m.cache.Endpoints.HTTP
		m.config.L1Bytes, m.config.L2Bytes, m.config.L2Dir, m.config.KeepL2 = 0, 0, "", false
	}
	m.stack, err = mini.Start(ctx, m.config)
	return err
}

// restart ends everything and starts it again where it was, with the files of L2.
func (m *miniServices) restart(ctx context.Context) error {
	for at, base := range map[*string]string{&m.config.Addr: m.stack.EngineURL(), &m.config.StoreAddr: m.stack.StoreURL()} {
		u, err := url.Parse(base)
		if err != nil {
			return err
		}
		*at = u.Host
	}
	if err := m.stack.Close(ctx); err != nil {
		return err
	}
	if m.cache != nil {
		if err := m.cache.Restart(ctx); err != nil {
			return err
		}
	}
	again, err := mini.Start(ctx, m.config)
	if err != nil {
		return err
	}
	m.stack = again
	return nil
}

func (m *miniServices) close(ctx context.Context) error {
	var failed []error
	if m.stack != nil {
		failed = append(failed, m.stack.Close(ctx))
	}
	if m.cache != nil {
		failed = append(failed, m.cache.Stop(ctx))
	}
	if m.files != "" {
		failed = append(failed, os.RemoveAll(m.files))
	}
	return errors.Join(failed...)
}

// closeNow is close after a start that failed.
func (m *miniServices) closeNow() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return m.close(ctx)
}
