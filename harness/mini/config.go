package mini

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// The rows that there are.
const (
	Baseline    = "baseline"     // no reuse at all
	EngineCache = "engine-cache" // the engine's own prefix cache
	LMCache     = "lmcache"      // no prefix cache in the engine, a store behind it
)

// Rows lists the rows, in the order in which messages name them.
func Rows() []string { return []string{Baseline, EngineCache, LMCache} }

// notBuilt are rows of kvproof that will come and have no stack yet.
var notBuilt = []string{"daser-chunk", "daser-prefix"}

// Defaults of a Config. Memory is taken block by block and chunk by chunk as
// it is used, so these are bounds: at 1 KiB of KV per token, as model.Mini
// has, half a million and a million tokens.
const (
	DefaultBlockSize        = 128
	DefaultMaxSeqs          = 8
	DefaultEngineCacheBytes = 512 << 20
	DefaultStoreBytes       = 1 << 30
	DefaultModelName        = "mini"
	defaultAddr             = "127.0.0.1:0"
)

// A Config says which stack to start. Only Row must be given.
type Config struct {
	Row       string
	BlockSize int           // B, tokens per block and per chunk; 0: DefaultBlockSize
	Addr      string        // of the engine; empty: a free port of 127.0.0.1
	StoreAddr string        // of the store, where the row has one; likewise
	Model     model.Config  // zero: model.Mini()
	ModelName string        // as clients name it; empty: DefaultModelName
	MaxSeqs   int           // sequences that run at once, more wait; 0: DefaultMaxSeqs
	Faults    []fault.Fault // planted from the start
	Unsafe    bool          // lets /debug/flip on the store's address damage what is stored
	Log       io.Writer     // what went wrong, in lines; nil: nowhere

	EngineCacheBytes int64 // KV that the row engine-cache keeps; 0: DefaultEngineCacheBytes
	StoreBytes       int64 // KV that a store keeps; 0: DefaultStoreBytes
}

// Validate says what is wrong with a config, before anything is started.
func (c Config) Validate() error {
	switch {
	case slices.Contains(notBuilt, c.Row):
		return fmt.Errorf("row %q is not built yet in the miniature stack; there are %s", c.Row, strings.Join(Rows(), ", "))
	case !slices.Contains(Rows(), c.Row):
		return fmt.Errorf("row %q is not known to the miniature stack; there are %s", c.Row, strings.Join(Rows(), ", "))
	case c.BlockSize < 0:
		return fmt.Errorf("block size %d: must be positive", c.BlockSize)
	case c.BlockSize > c.modelConfig().Context:
		return fmt.Errorf("block size %d: must be at most the model's context of %d tokens", c.BlockSize, c.modelConfig().Context)
	case c.MaxSeqs < 0:
		return fmt.Errorf("%d running sequences: must be positive", c.MaxSeqs)
	case c.EngineCacheBytes < 0 || c.StoreBytes < 0:
		return fmt.Errorf("caches of %d and %d bytes: must be positive", c.EngineCacheBytes, c.StoreBytes)
	}
	if !c.hasStore() {
		if c.Unsafe {
			return fmt.Errorf("row %q has no store whose bytes could be damaged: unsafe needs %s", c.Row, LMCache)
		}
		for _, f := range c.Faults {
			if f.NeedsStore() {
				return fmt.Errorf("row %q has no store in which fault %q could be planted: it needs %s", c.Row, f, LMCache)
			}
		}
	}
	return nil
}

// withDefaults fills in what was not given.
func (c Config) withDefaults() Config {
	c.Model = c.modelConfig()
	if c.Log == nil {
		c.Log = io.Discard
	}
	c.BlockSize = cmp.Or(c.BlockSize, DefaultBlockSize)
	c.Addr = cmp.Or(c.Addr, defaultAddr)
	c.StoreAddr = cmp.Or(c.StoreAddr, defaultAddr)
	c.ModelName = cmp.Or(c.ModelName, DefaultModelName)
	c.MaxSeqs = cmp.Or(c.MaxSeqs, DefaultMaxSeqs)
	c.EngineCacheBytes = cmp.Or(c.EngineCacheBytes, DefaultEngineCacheBytes)
	c.StoreBytes = cmp.Or(c.StoreBytes, DefaultStoreBytes)
	return c
}

func (c Config) modelConfig() model.Config { return cmp.Or(c.Model, model.Mini()) }

func (c Config) hasStore() bool { return c.Row == LMCache }

// engineBlockSize is the block size that the engine really runs with: half of
// what was asked for (twice, where that is odd) if it is to ignore it.
func (c Config) engineBlockSize() int {
	switch {
	case !slices.Contains(c.Faults, fault.BlockSizeIgnored):
		return c.BlockSize
	case c.BlockSize%2 == 0:
		return c.BlockSize / 2
	}
	return 2 * c.BlockSize
}

// chunk is the store's chunk: B, or the next multiple of the engine's block.
func (c Config) chunk() int { return max(c.BlockSize, c.engineBlockSize()) }

// numBlocks is the size of the engine's pool: room for every running sequence
// at full context, and in the row engine-cache for the KV that it keeps.
func (c Config) numBlocks(m *model.Model) int {
	size := c.engineBlockSize()
	perSequence := (m.Config().Context + size - 1) / size
	running := c.MaxSeqs * perSequence
	if c.Row != EngineCache {
		return running
	}
	return running + int(c.EngineCacheBytes/int64(size*m.TokenBytes()))
}
