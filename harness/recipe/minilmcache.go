package recipe

import (
	"context"
	"slices"
	"time"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// real says that the row's cache server is LMCache's own, behind the miniature
// engine.
func (r builtRow) real() bool { return r.name == mini.LMCache && r.stack.Launcher != nil }

// Missing says what has to be installed before the row can start; empty:
// nothing.
func (r builtRow) Missing() string {
	if !r.real() {
		return ""
	}
	if _, err := FindLMCache(""); err != nil {
		return err.Error()
	}
	return ""
}

// startCache starts the server with room for what the row must keep.
func (r builtRow) startCache(ctx context.Context, env row.Env, bytes int64, files string) (*RunningLMCache, error) {
	launcher, err := r.stack.Launcher()
	if err != nil {
		return nil, err
	}
	// It evicts from four fifths on, and rounds each chunk up.
	gib := max(0.25, 2*float64(bytes)/(1<<30))
	return LMCacheServer{Chunk: env.BlockSize, L1GB: gib, L2Dir: files, Dir: env.Dir}.Start(ctx, launcher)
}

// withoutReads leaves those reads out: a server with a second tier reads each
// chunk once more, to write it there.
func withoutReads(of func(c, tokenBytes int) []row.Witness) func(c, tokenBytes int) []row.Witness {
	return func(c, tokenBytes int) []row.Witness {
		return slices.DeleteFunc(of(c, tokenBytes), func(w row.Witness) bool { return w.Name == "reads" })
	}
}

const stopLimit = 30 * time.Second

// realLMCacheWitnesses replaces the miniature server's count of bytes by what
// LMCache's own counts of its memory: chunks read. Source: observed on 0.5.6.
func realLMCacheWitnesses(of func(c, tokenBytes int) []row.Witness) func(c, tokenBytes int) []row.Witness {
	return func(c, tokenBytes int) []row.Witness {
		witnesses := of(c, tokenBytes)
		for i, w := range witnesses {
			if w.Name == "bytes" {
				witnesses[i] = row.Witness{
					Name: "reads", Source: "lmcache_mp_l1_read_chunks", Probe: backendProbe, Required: true,
					Merged: true, // seen: eight loads of two chunks at once counted as two
					Law:    fixtures.LookupLaw(c), Count: probe.Times(c, probe.Counter("lmcache_mp_l1_read_chunks", "")),
				}
			}
		}
		return witnesses
	}
}
